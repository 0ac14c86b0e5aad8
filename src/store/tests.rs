//! What is kept is found again, whatever happened in between.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::mpsc;

use zeroize::Zeroizing;

use super::secret::SecretError;
use super::*;
use crate::auth::Use;
use crate::core::id::Attempt;
use crate::core::job::{JobSpec, JobState};
use crate::core::request::{Need, WaitReason};
use crate::core::task::{Command, TaskId};
use crate::core::time::WallTime;

fn record(number: u64) -> JobRecord {
    let id = JobId::from_bits(number);
    JobRecord {
        spec: JobSpec {
            id,
            owner: "o".into(),
            name: "n".into(),
            need: Need::default(),
            command: Command { args: vec![b"\xff\x00".to_vec().into()], ..Command::default() },
            submitted: WallTime(1),
        },
        task: TaskId { job: id, attempt: Attempt(1) },
        key: None,
        state: JobState::Waiting { reason: WaitReason::NoController },
        cancelled: false,
    }
}

fn keep(store: &Store, what: Keep) {
    let (done, wait) = mpsc::sync_channel(1);
    store.keep(what, Some(move || done.send(()).unwrap()));
    wait.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn what_was_kept_is_found_again_and_each_start_has_a_higher_number() {
    let folder = tempfile::tempdir().unwrap();
    let (store, loaded) = Store::open(folder.path()).unwrap();
    assert_eq!(loaded.incarnation, Incarnation(1));
    keep(&store, Keep::Job(Box::new(record(7))));
    keep(&store, Keep::Term(Term(9)));
    keep(&store, Keep::Seniority(3));
    keep(&store, Keep::Peer(NodeId([1; 32]), vec!["/ip4/192.0.2.1/tcp/1".into()]));
    let by = vec![Use { node: NodeId([2; 32]), endorsed: true, at: WallTime(4) }];
    let used = Used { expires: WallTime(5), by };
    keep(&store, Keep::Ticket(TicketId([3; 32]), Some(used.clone())));
    keep(&store, Keep::Ticket(TicketId([4; 32]), Some(used.clone())));
    keep(&store, Keep::Ticket(TicketId([4; 32]), None));
    drop(store);
    let (_store, loaded) = Store::open(folder.path()).unwrap();
    assert_eq!((loaded.incarnation, loaded.term), (Incarnation(2), Term(9)));
    assert_eq!(loaded.jobs, [record(7)]);
    assert_eq!(loaded.seniority, Some(3));
    assert_eq!(loaded.peers.len(), 1);
    assert_eq!(loaded.tickets, [(TicketId([3; 32]), used)]);
}

#[test]
fn a_disk_that_failed_is_tried_again_and_nothing_is_told_before() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    keep(&store, Keep::Term(Term(8)));
    let in_the_way = folder.path().join("fence.new");
    fs::create_dir(&in_the_way).unwrap();
    let (done, wait) = mpsc::sync_channel(1);
    store.keep(Keep::Term(Term(9)), Some(move || done.send(()).unwrap()));
    // Another request is no reason to believe that the first is on disk.
    store.keep(Keep::Term(Term(9)), None::<fn()>);
    assert!(wait.recv_timeout(Duration::from_millis(200)).is_err());
    fs::remove_dir(&in_the_way).unwrap();
    wait.recv_timeout(Duration::from_secs(20)).unwrap();
    drop(store);
    assert_eq!(Store::open(folder.path()).unwrap().1.term, Term(9));
}

#[test]
fn two_daemons_never_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _store = Store::open(folder.path()).unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Busy(_))));
}

#[test]
fn a_database_cut_off_anywhere_is_set_aside_and_the_fences_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    keep(&store, Keep::Job(Box::new(record(7))));
    keep(&store, Keep::Term(Term(9)));
    drop(store);
    let path = folder.path().join("gpuvine.redb");
    let whole = fs::read(&path).unwrap();
    let mut before = Incarnation(1);
    for len in (0..whole.len()).step_by(whole.len() / 24) {
        fs::write(&path, &whole[..len]).unwrap();
        let (store, loaded) = Store::open(folder.path()).unwrap_or_else(|e| panic!("{len}: {e:?}"));
        assert!(loaded.incarnation > before && loaded.term == Term(9), "cut at {len}");
        before = loaded.incarnation;
        drop(store);
    }
}

#[test]
fn a_damaged_fence_stops_the_node_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path()).unwrap());
    fs::write(folder.path().join("fence"), b"short").unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::File { .. })));
}

#[test]
fn a_secret_is_made_once_and_read_only_if_nobody_else_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    assert!(secret::read(&path).unwrap().is_none());
    secret::create(&path, &Zeroizing::new([7; 32])).unwrap();
    assert_eq!(*secret::read(&path).unwrap().unwrap(), [7; 32]);
    let again = secret::create(&path, &Zeroizing::new([8; 32]));
    assert!(matches!(again, Err(SecretError::Exists(_))));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = secret::read(&path).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(secret::read(&link), Err(SecretError::Io { .. })));
    fs::write(&path, "").unwrap();
    assert!(matches!(secret::read(&path), Err(SecretError::Malformed(_))));
}

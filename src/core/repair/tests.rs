//! Two directories become equal, in both directions, and then are silent.

use rand::SeedableRng as _;

use super::*;
use crate::core::id::{Incarnation, Version};
use crate::core::report::testing::{node, report};
use crate::core::signed::Key;

struct Peer {
    repair: Repair,
    directory: Directory,
    pulled: bool,
}

fn peer(numbers: &[u8]) -> Peer {
    let mut directory = Directory::new();
    for number in numbers {
        let signed = Key::from_seed(&[*number; 32]).sign(report(*number, Vec::new()));
        directory.insert(signed, Instant::ZERO);
    }
    let repair = Repair::new(ChaCha12Rng::seed_from_u64(1));
    Peer { repair, directory, pulled: false }
}

/// Lets two peers talk until they are silent; how many messages that took.
fn talk(a: &mut Peer, b: &mut Peer, first: Input) -> usize {
    let ids = [node(200), node(201)];
    let mut queue = std::collections::VecDeque::from([(0, first)]);
    let mut messages = 0;
    while let Some((at, input)) = queue.pop_front() {
        let peer = if at == 0 { &mut *a } else { &mut *b };
        let mut out = Outbox::new();
        peer.repair.handle(input, &peer.directory, Instant::ZERO, &mut out);
        for effect in out.drain() {
            match effect {
                Effect::Learnt(report) => {
                    peer.directory.insert(report, Instant::ZERO);
                }
                Effect::Compare(_) => {}
                Effect::Pulled => peer.pulled = true,
                Effect::Send(_, message) => {
                    messages += 1;
                    assert!(messages < 1_000, "they never stop");
                    queue.push_back((1 - at, Input::Received(ids[at], message)));
                }
            }
        }
    }
    messages
}

#[test]
fn a_joiner_pulls_the_whole_directory_and_gives_what_it_has() {
    let numbers: Vec<u8> = (0..150).collect();
    let (mut joiner, mut member) = (peer(&[180]), peer(&numbers));
    talk(&mut joiner, &mut member, Input::Linked(node(201)));
    assert!(joiner.pulled);
    assert_eq!(joiner.directory.len(), 151);
    assert_eq!(joiner.directory.digest(), member.directory.digest());
}

#[test]
fn equal_directories_are_compared_with_one_message() {
    let (mut a, mut b) = (peer(&[1, 2, 3]), peer(&[1, 2, 3]));
    let digest = Message::Digest(b.directory.digest());
    assert_eq!(talk(&mut a, &mut b, Input::Received(node(201), digest)), 0);
}

#[test]
fn a_different_digest_leads_to_equal_directories() {
    let (mut a, mut b) = (peer(&[1, 2, 3, 4]), peer(&[3, 4, 5, 6]));
    let digest = Message::Digest(b.directory.digest());
    talk(&mut a, &mut b, Input::Received(node(201), digest));
    assert_eq!(a.directory.digest(), b.directory.digest());
    assert_eq!(a.directory.len(), 6);
}

#[test]
fn a_page_that_is_too_long_is_dropped_and_wishes_are_cut() {
    let (mut a, mut b) = (peer(&[1]), peer(&[2]));
    let ages = vec![(node(1), Incarnation(1), Version(1)); PAGE + 1];
    let flood = Message::Summary { after: None, upto: None, ages };
    assert_eq!(talk(&mut a, &mut b, Input::Received(node(201), flood)), 0);
    let wish = Message::Want(vec![node(1); 10_000]);
    assert!(talk(&mut a, &mut b, Input::Received(node(201), wish)) <= 2);
}

#[test]
fn digests_are_compared_with_a_random_link_every_few_seconds() {
    let mut a = peer(&[1]);
    let mut out = Outbox::new();
    a.repair.handle(Input::Linked(node(9)), &a.directory, Instant::ZERO, &mut out);
    let at = a.repair.deadline().unwrap();
    out.drain().for_each(drop);
    a.repair.handle(Input::Deadline, &a.directory, at, &mut out);
    // Until a whole directory has been pulled, it is asked for again.
    assert!(matches!(out.pop(), Some(Effect::Send(_, Message::Summary { .. }))));
    let last = Message::Reports { reports: Vec::new(), last: true };
    a.repair.handle(Input::Received(node(9), last), &a.directory, at, &mut out);
    out.drain().for_each(drop);
    let next = a.repair.deadline().unwrap();
    assert!(next > at);
    a.repair.handle(Input::Deadline, &a.directory, next, &mut out);
    let digest = Message::Digest(a.directory.digest());
    assert_eq!(out.pop(), Some(Effect::Send(node(9), digest)));
    assert_eq!(out.pop(), Some(Effect::Compare(node(9))));
}

/// A peer that knows so many; their reports are signed once for all tests.
fn crowd(count: usize) -> Peer {
    static REPORTS: std::sync::OnceLock<Vec<Signed<Report>>> = std::sync::OnceLock::new();
    let reports = REPORTS.get_or_init(|| {
        let one = |number: u64| {
            let mut seed = [7; 32];
            seed[..8].copy_from_slice(&number.to_be_bytes());
            let key = Key::from_seed(&seed);
            key.sign(Report { node: key.id(), ..report(1, Vec::new()) })
        };
        (0..2_000).map(one).collect()
    });
    let mut peer = peer(&[]);
    for report in &reports[..count] {
        peer.directory.insert(report.clone(), Instant::ZERO);
    }
    peer.repair.adopt();
    peer
}

#[test]
fn one_report_that_is_missing_among_thousands_costs_a_few_messages() {
    let (mut a, mut b) = (crowd(1_999), crowd(2_000));
    let digest = Message::Digest(b.directory.digest());
    let messages = talk(&mut a, &mut b, Input::Received(node(201), digest));
    assert!(messages <= 6, "{messages}");
    assert_eq!(a.directory.digest(), b.directory.digest());
}

#[test]
fn two_halves_of_a_large_mesh_become_one() {
    let (mut a, mut b) = (crowd(100), crowd(2_000));
    let digest = Message::Digest(b.directory.digest());
    talk(&mut a, &mut b, Input::Received(node(201), digest));
    assert_eq!(a.directory.digest(), b.directory.digest());
}

#[test]
fn too_many_parts_are_dropped() {
    let (mut a, mut b) = (crowd(100), crowd(200));
    let parts = vec![(None, Digest::default()); PARTS + 1];
    let flood = Message::Parts { after: None, parts };
    assert_eq!(talk(&mut a, &mut b, Input::Received(node(201), flood)), 0);
}

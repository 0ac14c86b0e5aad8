//! Two directories become equal, in both directions, and then are silent.

use rand::SeedableRng as _;

use super::*;
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

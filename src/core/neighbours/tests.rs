//! Whom a node dials, whom it is linked with, and how its messages travel.

use rand::SeedableRng as _;

use super::*;

const T0: Instant = Instant::from_nanos(1_000);

fn id(number: u16) -> NodeId {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    NodeId(bytes)
}

fn neighbours(me: u16, bootstrap: &[&str]) -> Neighbours {
    let bootstrap = bootstrap.iter().map(|address| (*address).to_owned()).collect();
    Neighbours::new(id(me), bootstrap, Vec::new(), rng())
}

fn rng() -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(1)
}

fn handle(neighbours: &mut Neighbours, input: Input, now: Instant) -> Vec<Effect> {
    let mut out = Outbox::new();
    neighbours.handle(input, &Directory::new(), now, &mut out);
    out.drain().collect()
}

#[test]
fn a_known_member_is_dialled_and_again_only_after_growing_waits() {
    let mut neighbours = neighbours(0, &[]);
    let known = Input::Known(id(1), vec!["a".into()]);
    assert_eq!(handle(&mut neighbours, known.clone(), T0).len(), 1);
    assert!(handle(&mut neighbours, known, T0).is_empty());
    let mut waits = Vec::new();
    let mut now = T0;
    for _ in 0..12 {
        let next = neighbours.deadline().unwrap();
        waits.push(next - now);
        now = next;
        assert_eq!(handle(&mut neighbours, Input::Deadline, now).len(), 1);
    }
    assert!(waits[0] < Duration::from_millis(400) && waits[11] <= Duration::from_secs(38));
    handle(&mut neighbours, Input::Linked(id(1)), now);
    assert_eq!(neighbours.deadline(), None);
}

#[test]
fn the_users_addresses_are_tried_while_there_is_no_link() {
    let mut neighbours = neighbours(0, &["x"]);
    let dial = [Effect::DialAddress("x".into())];
    assert_eq!(handle(&mut neighbours, Input::Deadline, T0), dial);
    handle(&mut neighbours, Input::Linked(id(1)), T0);
    assert_eq!(neighbours.deadline(), None);
    assert_eq!(handle(&mut neighbours, Input::Unlinked(id(1)), T0), dial);
}

#[test]
fn one_of_those_that_are_gone_is_dialled_every_few_seconds_until_it_is_back() {
    let mut neighbours = neighbours(0, &[]);
    for other in 1..40 {
        let known = Input::Known(id(other), vec![format!("a{other}")]);
        handle(&mut neighbours, known, T0);
        handle(&mut neighbours, Input::Linked(id(other)), T0);
        handle(&mut neighbours, Input::Unlinked(id(other)), T0);
        handle(&mut neighbours, Input::Gone(id(other)), T0);
    }
    let mut now = T0;
    let mut dialled = BTreeSet::new();
    for _ in 0..400 {
        let next = neighbours.deadline().unwrap();
        assert!(next > now && next - now <= GONE_EVERY.mul_f64(1.5));
        now = next;
        let effects = handle(&mut neighbours, Input::Deadline, now);
        let [Effect::Dial(node, addresses)] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(addresses.len(), 1);
        dialled.insert(*node);
    }
    assert_eq!(dialled.len(), 39);
    for other in 1..39 {
        handle(&mut neighbours, Input::Forgotten(id(other)), now);
    }
    handle(&mut neighbours, Input::Linked(id(39)), now);
    assert_eq!(neighbours.deadline(), None);
}

#[test]
fn members_of_before_are_dialled_although_there_are_links() {
    let remembered = vec![(id(1), vec!["a".into()]), (id(0), vec!["me".into()])];
    let mut neighbours =
        Neighbours::new(id(0), Vec::new(), remembered, ChaCha12Rng::seed_from_u64(1));
    handle(&mut neighbours, Input::Linked(id(2)), T0);
    let at = T0 + GONE_EVERY.mul_f64(1.5);
    let dial = [Effect::Dial(id(1), vec!["a".into()])];
    assert_eq!(handle(&mut neighbours, Input::Deadline, at), dial);
}

#[test]
fn a_wish_for_one_that_is_gone_dials_it_at_once() {
    let mut neighbours = neighbours(0, &[]);
    handle(&mut neighbours, Input::Known(id(1), vec!["a".into()]), T0);
    handle(&mut neighbours, Input::Gone(id(1)), T0);
    let dial = [Effect::Dial(id(1), vec!["a".into()])];
    assert_eq!(handle(&mut neighbours, Input::Wish(id(1)), T0), dial);
}

/// Spread over the ring, as real ids are.
fn spread(number: u16) -> NodeId {
    id(number.wrapping_mul(40_503))
}

fn in_a_large_mesh(me: u16, others: impl Iterator<Item = u16>) -> Neighbours {
    let mut neighbours = Neighbours::new(spread(me), Vec::new(), Vec::new(), rng());
    for other in others.filter(|other| *other != me) {
        neighbours.strangers.insert(spread(other), vec!["a".into()]);
    }
    neighbours
}

#[test]
fn a_large_mesh_is_connected_by_few_links() {
    const SIZE: u16 = 500;
    let mut reached = BTreeSet::from([0]);
    let mut queue = vec![0];
    while let Some(me) = queue.pop() {
        let wanted = in_a_large_mesh(me, 0..SIZE).wanted(&Directory::new(), T0);
        assert!(wanted.len() <= 12, "{}", wanted.len());
        for other in (0..SIZE).filter(|other| wanted.contains(&spread(*other))) {
            if reached.insert(other) {
                queue.push(other);
            }
        }
    }
    assert_eq!(reached.len(), usize::from(SIZE));
}

#[test]
fn one_that_is_gone_changes_the_fingers_of_few() {
    let fingers = |me, gone| {
        in_a_large_mesh(me, (0..500).filter(|other| *other != gone)).wanted(&Directory::new(), T0)
    };
    let changed = (0..499).filter(|me| fingers(*me, 499) != fingers(*me, u16::MAX)).count();
    assert!((1..40).contains(&changed), "{changed}");
}

#[test]
fn a_message_waits_for_the_link_and_travels_around_if_there_is_none() {
    let ask = || control::Message::Full {
        task: crate::core::task::TaskId {
            job: crate::core::id::JobId::from_bits(1),
            attempt: crate::core::id::Attempt(1),
        },
    };
    let mut neighbours = neighbours(0, &[]);
    handle(&mut neighbours, Input::Known(id(1), vec!["a".into()]), T0);
    let send = || Input::Send(id(1), Message::Control(ask()));
    assert!(handle(&mut neighbours, send(), T0).is_empty());
    let sent = handle(&mut neighbours, Input::Linked(id(1)), T0);
    assert_eq!(sent, [Effect::Send(id(1), Message::Control(ask()))]);
    handle(&mut neighbours, Input::Linked(id(2)), T0);
    handle(&mut neighbours, Input::Unlinked(id(1)), T0);
    for _ in 0..3 * PARKED_MAX {
        handle(&mut neighbours, send(), T0);
    }
    let relayed = handle(&mut neighbours, Input::DialFailed(id(1)), T0);
    assert_eq!(relayed.len(), PARKED_MAX);
    assert_eq!(relayed[0], Effect::Relay(id(2), id(1), ask()));
}

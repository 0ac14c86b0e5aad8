//! Some memberships in virtual time: who is alive is known everywhere, and soon.

use rand::SeedableRng as _;

use super::*;
use crate::core::report::testing::node;

/// Memberships that exchange datagrams at once, unless one of them is cut off.
struct Mesh {
    members: Vec<Membership>,
    cut: Vec<NodeId>,
    /// Those whom the others cannot reach, nor they the others.
    apart: Vec<NodeId>,
    now: Instant,
    seen: Vec<(NodeId, Effect)>,
}

impl Mesh {
    fn new(size: u8) -> Self {
        let member = |n| {
            let rng = ChaCha12Rng::seed_from_u64(u64::from(n));
            Membership::new(node(n), Incarnation(1), rng)
        };
        let members = (0..size).map(member).collect();
        let mut mesh = Self {
            members,
            cut: Vec::new(),
            apart: Vec::new(),
            now: Instant::ZERO,
            seen: Vec::new(),
        };
        for other in 1..size {
            mesh.input(node(other), Input::Met(node(0)));
        }
        mesh.run(Duration::from_secs(10));
        mesh
    }

    fn input(&mut self, at: NodeId, input: Input) {
        let mut queue = vec![(at, input)];
        while let Some((at, input)) = queue.pop() {
            if self.cut.contains(&at) {
                continue;
            }
            let Some(member) = self.members.iter_mut().find(|member| member.me == at) else {
                continue;
            };
            let mut out = Outbox::new();
            member.handle(input, self.now, &mut out);
            for effect in out.drain() {
                match effect {
                    Effect::Send(to, _) if self.apart.contains(&to) != self.apart.contains(&at) => {
                    }
                    Effect::Send(to, bytes) => queue.push((to, Input::Datagram(at, bytes))),
                    other => self.seen.push((at, other)),
                }
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, due)) = self
            .members
            .iter()
            .filter(|member| !self.cut.contains(&member.me))
            .filter_map(|member| Some((member.me, member.deadline()?)))
            .min_by_key(|(_, due)| *due)
            .filter(|(_, due)| *due <= end)
        {
            self.now = self.now.max(due);
            self.input(at, Input::Deadline);
        }
        self.now = end;
    }

    fn member(&mut self, at: NodeId) -> &mut Membership {
        self.members.iter_mut().find(|member| member.me == at).unwrap()
    }

    fn knows(&self, at: u8, other: u8) -> bool {
        self.members[usize::from(at)].is_alive(node(other))
    }
}

#[test]
fn all_learn_of_all() {
    let mesh = Mesh::new(8);
    for at in 0..8 {
        for other in (0..8).filter(|other| *other != at) {
            assert!(mesh.knows(at, other), "{at} does not know {other}");
        }
    }
}

#[test]
fn a_silent_member_is_declared_dead_by_all_and_a_lost_link_hastens_it() {
    let mut mesh = Mesh::new(5);
    mesh.cut.push(node(4));
    mesh.input(node(0), Input::LinkLost(node(4)));
    mesh.run(Duration::from_secs(5));
    for at in 0..4 {
        assert!(!mesh.knows(at, 4), "{at} still believes in 4");
    }
}

#[test]
fn a_lost_link_alone_kills_nobody() {
    let mut mesh = Mesh::new(5);
    mesh.seen.clear();
    mesh.input(node(0), Input::LinkLost(node(4)));
    mesh.run(Duration::from_secs(20));
    assert!((0..4).all(|at| mesh.knows(at, 4)));
    assert!(!mesh.seen.iter().any(|(_, effect)| matches!(effect, Effect::Down(_))));
}

#[test]
fn who_hears_a_suspect_speak_refutes_for_it() {
    let mut mesh = Mesh::new(5);
    for heard in [Input::Met(node(4)), Input::Datagram(node(4), Vec::new())] {
        let member = &mut mesh.members[0];
        let mut out = Outbox::new();
        member.handle(Input::LinkLost(node(4)), mesh.now, &mut out);
        assert_eq!(member.roll.get(node(4)).unwrap().state, State::Suspect);
        member.handle(heard, mesh.now, &mut out);
        let state = member.roll.get(node(4)).unwrap().state;
        assert_eq!((state, member.suspects.len()), (State::Alive, 0));
    }
}

#[test]
fn two_that_have_declared_each_other_dead_do_not_talk_without_end() {
    let mut mesh = Mesh::new(2);
    mesh.cut = vec![node(0), node(1)];
    for at in [0, 1] {
        let now = mesh.now;
        let member = &mut mesh.members[at];
        member.handle(Input::LinkLost(node(1 - at as u8)), now, &mut Outbox::new());
        let later = now + Duration::from_secs(20);
        while let Some(at) = member.deadline().filter(|at| *at <= later) {
            member.handle(Input::Deadline, at, &mut Outbox::new());
        }
        assert_eq!(member.alive().count(), 0);
    }
    mesh.now = mesh.now + Duration::from_secs(20);
    mesh.cut.clear();
    // What crosses on its way is what makes both answer at once.
    for at in [0, 1] {
        mesh.input(node(at), Input::Met(node(1 - at)));
    }
    mesh.run(Duration::from_secs(10));
    mesh.input(node(0), Input::Met(node(1)));
    mesh.run(Duration::from_secs(10));
    assert!(mesh.knows(0, 1) && mesh.knows(1, 0));
}

#[test]
fn a_goodbye_is_known_at_once() {
    let mut mesh = Mesh::new(5);
    mesh.input(node(2), Input::Leave);
    mesh.cut.push(node(2));
    mesh.run(Duration::from_secs(2));
    assert!([0, 1, 3, 4].into_iter().all(|at| !mesh.knows(at, 2)));
}

#[test]
fn a_restarted_member_is_up_again_although_its_death_was_never_known() {
    let mut mesh = Mesh::new(3);
    mesh.seen.clear();
    let rng = ChaCha12Rng::seed_from_u64(99);
    mesh.members[2] = Membership::new(node(2), Incarnation(2), rng);
    mesh.input(node(2), Input::Met(node(0)));
    mesh.run(Duration::from_secs(5));
    assert!(mesh.knows(0, 2) && mesh.knows(1, 2) && mesh.knows(2, 0) && mesh.knows(2, 1));
    assert!(mesh.seen.contains(&(node(0), Effect::Up(node(2)))));
}

#[test]
fn repair_introduces_a_member_that_gossip_missed_and_never_revives_a_dead_one() {
    let mut mesh = Mesh::new(3);
    mesh.cut.push(node(2));
    mesh.input(node(0), Input::LinkLost(node(2)));
    mesh.run(Duration::from_secs(10));
    mesh.input(node(0), Input::Repaired(node(2), Incarnation(1)));
    assert!(!mesh.knows(0, 2));
    mesh.input(node(0), Input::Repaired(node(2), Incarnation(2)));
    assert!(mesh.knows(0, 2));
}

#[test]
fn junk_changes_nothing() {
    let mut mesh = Mesh::new(3);
    for len in 0..64 {
        mesh.input(node(0), Input::Datagram(node(1), vec![0xa5; len]));
    }
    mesh.input(node(0), Input::Datagram(node(1), vec![0; 5_000]));
    mesh.run(Duration::from_secs(5));
    assert!(mesh.knows(0, 1) && mesh.knows(0, 2));
}

#[test]
fn a_node_whose_number_was_too_low_is_alive_for_all_once_it_is_raised() {
    let mut mesh = Mesh::new(4);
    // The others have met a third start; this is one from before.
    for other in 0..3 {
        mesh.input(node(other), Input::Repaired(node(3), Incarnation(3)));
    }
    mesh.input(node(3), Input::Incarnation(Incarnation(4)));
    mesh.input(node(3), Input::Met(node(0)));
    mesh.run(Duration::from_secs(10));
    for member in &mesh.members {
        assert_eq!(member.alive().count(), 3, "as {:?} sees it", member.me);
    }
}

#[test]
fn a_node_of_which_a_later_start_is_known_comes_back_although_nobody_tells_its_number() {
    let mut mesh = Mesh::new(3);
    mesh.cut.push(node(2));
    for other in 0..2 {
        mesh.input(node(other), Input::Repaired(node(2), Incarnation(4)));
    }
    mesh.run(Duration::from_secs(20));
    assert!(!mesh.knows(0, 2) && !mesh.knows(1, 2));
    mesh.cut.clear();
    for _ in 0..10 {
        mesh.input(node(2), Input::Met(node(0)));
        mesh.run(Duration::from_secs(2));
    }
    assert!(mesh.knows(0, 2) && mesh.knows(1, 2));
}

#[test]
fn a_link_that_is_closed_on_purpose_makes_no_suspect() {
    let mut mesh = Mesh::new(3);
    mesh.input(node(0), Input::Parting(node(1)));
    for (at, other) in [(0, 1), (1, 0)] {
        mesh.input(node(at), Input::LinkLost(node(other)));
        assert_eq!(mesh.members[usize::from(at)].suspects.len(), 0);
    }
    mesh.input(node(0), Input::LinkLost(node(1)));
    assert_eq!(mesh.members[0].suspects.len(), 1);
}

#[test]
fn one_that_slept_condemns_nobody_for_what_it_did_not_hear() {
    let mut mesh = Mesh::new(4);
    mesh.seen.clear();
    mesh.input(node(0), Input::LinkLost(node(1)));
    mesh.cut.push(node(0));
    mesh.run(Duration::from_secs(60));
    mesh.cut.clear();
    mesh.run(Duration::from_secs(20));
    let condemned =
        |(at, effect): &(NodeId, Effect)| *at == node(0) && matches!(effect, Effect::Down(_));
    assert!(!mesh.seen.iter().any(condemned));
    assert!((1..4).all(|other| mesh.knows(0, other) && mesh.knows(other, 0)));
}

#[test]
fn circles_of_a_few_are_enough_for_all_to_learn_of_a_death() {
    let mut mesh = in_circles();
    mesh.seen.clear();
    mesh.cut.push(node(30));
    mesh.run(Duration::from_secs(10));
    let died: Vec<NodeId> = mesh.seen.iter().filter_map(|(_, effect)| down(effect)).collect();
    assert_eq!(died, vec![node(30); usize::from(SIZE) - 1]);
}

/// Members of which each has a few others in its circle.
const SIZE: u8 = 60;

fn ring() -> Vec<NodeId> {
    let mut ring: Vec<NodeId> = (0..SIZE).map(node).collect();
    ring.sort_unstable();
    ring
}

fn in_circles() -> Mesh {
    let mut mesh = Mesh::new(SIZE);
    let ring = ring();
    let size = ring.len();
    for (at, me) in ring.iter().enumerate() {
        ring.iter().for_each(|other| mesh.input(*me, Input::Repaired(*other, Incarnation(1))));
        let steps = [1, 2, 4, 8, 16, 32].into_iter();
        let circle = steps.flat_map(|step| [at + step, at + size - step]);
        let circle = circle.map(|at| ring[at % size]).collect();
        mesh.input(*me, Input::Circle(circle));
    }
    mesh
}

#[test]
fn a_death_that_was_slept_through_is_learnt_of_by_comparing() {
    let mut mesh = in_circles();
    let ring = ring();
    // Neither has the other in its circle.
    let (sleeper, dead, other) = (ring[0], ring[21], ring[1]);
    mesh.cut.extend([sleeper, dead]);
    mesh.run(Duration::from_secs(60));
    mesh.cut.retain(|cut| *cut == dead);
    mesh.run(Duration::from_secs(60));
    let takes = |mesh: &mut Mesh, at, node| mesh.member(at).is_alive(node);
    assert!(takes(&mut mesh, other, sleeper) && !takes(&mut mesh, other, dead));
    assert!(takes(&mut mesh, sleeper, dead));
    mesh.input(sleeper, Input::Compare(other));
    assert!(mesh.seen.contains(&(sleeper, Effect::Doubt(dead))));
    assert!(takes(&mut mesh, sleeper, dead));
    mesh.input(sleeper, Input::Unreachable(dead));
    mesh.run(Duration::from_secs(20));
    assert!(!takes(&mut mesh, sleeper, dead));
    // They agree, and have nothing more to say to each other.
    let digests = [other, sleeper].map(|at| mesh.member(at).living.digest());
    assert_eq!(digests[0], digests[1]);
}

/// What half of a mesh held for true while it was alone is not told to the other half as a verdict:
/// it would hang up on its own.
#[test]
fn halves_that_meet_again_condemn_nobody() {
    let mut mesh = in_circles();
    let half: Vec<NodeId> = ring().into_iter().skip(30).collect();
    mesh.apart.clone_from(&half);
    mesh.run(Duration::from_secs(120));
    let (here, there) = (ring()[0], half[0]);
    assert!(!mesh.member(here).is_alive(there) && !mesh.member(there).is_alive(here));
    mesh.apart.clear();
    mesh.seen.clear();
    mesh.input(there, Input::Met(here));
    mesh.input(there, Input::Compare(here));
    mesh.run(Duration::from_secs(60));
    let condemned: Vec<_> = mesh
        .seen
        .iter()
        .filter(|(at, effect)| {
            half.contains(at) && down(effect).is_some_and(|node| half.contains(&node))
        })
        .collect();
    assert!(condemned.is_empty(), "{}", condemned.len());
    assert!(ring()[1..].iter().all(|node| mesh.member(here).is_alive(*node)));
}

#[test]
fn all_the_dead_are_told_of_in_turn() {
    let mut member = Membership::new(node(0), Incarnation(1), ChaCha12Rng::seed_from_u64(1));
    let mut told = std::collections::BTreeSet::new();
    let mut out = Outbox::new();
    for other in 1..=100 {
        for state in [State::Alive, State::Down] {
            member.judge(Rumour { node: node(other), life: 1, state }, Instant::ZERO, &mut out);
        }
    }
    for _ in 0..5 {
        out.drain().for_each(drop);
        member.tell_of_dead(1, node(101), &mut out);
        let sent: Vec<Effect> = out.drain().collect();
        let [Effect::Send(_, bytes)] = &sent[..] else { panic!("{sent:?}") };
        let rumours = Datagram::decode(bytes).unwrap().rumours;
        assert!(rumours.len() <= datagram::RUMOURS_MAX);
        told.extend(rumours.into_iter().map(|rumour| rumour.node));
    }
    assert_eq!(told.len(), 100);
}

fn down(effect: &Effect) -> Option<NodeId> {
    if let Effect::Down(node) = effect { Some(*node) } else { None }
}

#[test]
fn who_missed_how_a_suspicion_ended_asks_before_it_condemns() {
    let mut mesh = Mesh::new(5);
    mesh.seen.clear();
    let now = mesh.now;
    let life = mesh.members[0].roll.get(node(4)).unwrap().life;
    for at in 1..4 {
        let refuted = Rumour { node: node(4), life: life + 1, state: State::Alive };
        mesh.members[at].judge(refuted, now, &mut Outbox::new());
    }
    // Told once, and never that it is over.
    mesh.input(node(0), Input::Circle((1..4).map(node).collect()));
    let suspect = Rumour { node: node(4), life, state: State::Suspect };
    mesh.members[0].judge(suspect, now, &mut Outbox::new());
    mesh.run(Duration::from_secs(30));
    assert!(mesh.knows(0, 4));
    assert!(!mesh.seen.iter().any(|(_, effect)| down(effect).is_some()));
}

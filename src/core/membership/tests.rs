//! Some memberships in virtual time: who is alive is known everywhere, and soon.

use rand::SeedableRng as _;

use super::*;
use crate::core::report::testing::node;

/// Memberships that exchange datagrams at once, unless one of them is cut off.
struct Mesh {
    members: Vec<Membership>,
    cut: Vec<NodeId>,
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
        let mut mesh = Self { members, cut: Vec::new(), now: Instant::ZERO, seen: Vec::new() };
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
                    Effect::Send(to, bytes) => queue.push((to, Input::Datagram(bytes))),
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
        mesh.input(node(0), Input::Datagram(vec![0xa5; len]));
    }
    mesh.input(node(0), Input::Datagram(vec![0; 5_000]));
    mesh.run(Duration::from_secs(5));
    assert!(mesh.knows(0, 1) && mesh.knows(0, 2));
}

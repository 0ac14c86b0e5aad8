//! Elections in virtual time: who reigns after what, and how soon.

use super::*;
use crate::core::outbox::Outbox;
use crate::core::signed::Key;
use crate::core::time::{Duration, Instant};

fn key(number: u8) -> Key {
    Key::from_seed(&[number; 32])
}

fn candidates(first: Vec<NodeId>) -> Input {
    Input::Candidates { first, complete: true }
}

/// Elections that see each other, with messages that take one millisecond.
struct Mesh {
    nodes: Vec<Option<Election>>,
    /// Pairs of nodes between which nothing passes.
    cut: Vec<(usize, usize)>,
    frozen: Vec<usize>,
    queue: Vec<(Instant, usize, Input)>,
    now: Instant,
    stored: Vec<Vec<Term>>,
}

impl Mesh {
    fn new(size: u8) -> Self {
        let mut mesh = Self {
            nodes: Vec::new(),
            cut: Vec::new(),
            frozen: Vec::new(),
            queue: Vec::new(),
            now: Instant::ZERO,
            stored: vec![Vec::new(); usize::from(size)],
        };
        for number in 0..size {
            let listen = if number == 0 { Duration::ZERO } else { Duration::from_secs(3) };
            let config = Config { listen, ..Config::default() };
            mesh.nodes.push(Some(Election::new(key(number), Term(0), config, Instant::ZERO)));
        }
        mesh.meet();
        mesh.run(Duration::from_secs(5));
        mesh
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|n| self.nodes[*n].is_some()).collect()
    }

    /// Everybody is linked with everybody and knows who could reign, by number.
    fn meet(&mut self) {
        let ids: Vec<NodeId> =
            self.alive().iter().map(|n| self.nodes[*n].as_ref().unwrap().me()).collect();
        for n in self.alive() {
            self.input(n, candidates(ids.clone()));
            for other in &ids {
                if *other != ids[self.alive().iter().position(|a| *a == n).unwrap()] {
                    self.input(n, Input::Linked(*other));
                }
            }
        }
    }

    fn id(number: usize) -> NodeId {
        key(u8::try_from(number).unwrap()).id()
    }

    fn passes(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&(a, b)) && !self.cut.contains(&(b, a))
    }

    fn input(&mut self, at: usize, input: Input) {
        let mut out = Outbox::new();
        if let Some(node) = &mut self.nodes[at] {
            node.handle(input, self.now, &mut out);
        }
        let soon = self.now + Duration::from_millis(1);
        for effect in out.drain() {
            match effect {
                Effect::Broadcast(claim) => {
                    for to in self.alive() {
                        if to != at {
                            let claim = Message::Claim(claim.clone());
                            self.queue.push((soon, to, Input::Received(Self::id(at), claim)));
                        }
                    }
                }
                Effect::Send(to, message) => {
                    let to = (0..self.nodes.len()).find(|n| Self::id(*n) == to).unwrap();
                    self.queue.push((soon, to, Input::Received(Self::id(at), message)));
                }
                Effect::StoreTerm(term) => {
                    self.stored[at].push(term);
                    self.queue.push((soon, at, Input::TermStored(term)));
                }
                Effect::Connect(to) => {
                    let number = (0..self.nodes.len()).find(|n| Self::id(*n) == to).unwrap();
                    if self.nodes[number].is_none() {
                        self.queue.push((soon, at, Input::DialFailed(to)));
                    }
                }
                Effect::CountAhead | Effect::Followed(_) => {}
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timers = self
                .alive()
                .into_iter()
                .filter(|n| !self.frozen.contains(n))
                .filter_map(|n| Some((self.nodes[n].as_ref()?.deadline()?, n)));
            let timer = timers.min().filter(|(at, _)| *at <= end);
            let next = (0..self.queue.len())
                .filter(|i| !self.frozen.contains(&self.queue[*i].1))
                .min_by_key(|i| self.queue[*i].0);
            let message = next.map(|i| self.queue[i].0).filter(|at| *at <= end);
            match (timer, message) {
                (None, None) => break,
                (Some((at, n)), message) if message.is_none_or(|m| at <= m) => {
                    self.now = self.now.max(at);
                    self.input(n, Input::Deadline);
                }
                _ => {
                    let (at, to, input) = self.queue.remove(next.unwrap());
                    self.now = self.now.max(at);
                    let passes = match &input {
                        Input::Received(from, _) => {
                            let from = (0..self.nodes.len()).find(|n| Self::id(*n) == *from);
                            self.passes(from.unwrap(), to)
                        }
                        _ => true,
                    };
                    if passes {
                        self.input(to, input);
                    }
                }
            }
        }
        self.now = end;
    }

    /// Takes a node away, as kill -9 does: all its links break.
    fn kill(&mut self, number: usize) {
        self.nodes[number] = None;
        for other in self.alive() {
            self.input(other, Input::Unlinked(Self::id(number)));
        }
    }

    /// Whom all living nodes follow, if they agree.
    fn controller(&self) -> Option<usize> {
        let mut seen = None;
        for n in self.alive().into_iter().filter(|n| !self.frozen.contains(n)) {
            let reign = self.nodes[n].as_ref()?.reign()?;
            if seen.is_some_and(|seen| seen != reign) {
                return None;
            }
            seen = Some(reign);
        }
        (0..self.nodes.len()).find(|n| Some(Self::id(*n)) == seen.map(|reign| reign.controller))
    }
}

#[test]
fn a_lone_founder_claims_at_once() {
    let mut mesh = Mesh::new(1);
    assert_eq!(mesh.controller(), Some(0));
    assert_eq!(mesh.stored[0], [Term(1)]);
    mesh.run(Duration::from_secs(60));
    assert_eq!(mesh.stored[0], [Term(1)]);
}

#[test]
fn joiners_follow_and_nobody_else_claims() {
    let mut mesh = Mesh::new(5);
    assert_eq!(mesh.controller(), Some(0));
    mesh.run(Duration::from_secs(60));
    assert_eq!(mesh.controller(), Some(0));
    assert!(mesh.stored[1..].iter().all(|stored| *stored == [Term(1)]));
}

#[test]
fn a_killed_controller_is_replaced_within_a_second_by_the_best_placed() {
    for size in [2, 3, 5, 8] {
        let mut mesh = Mesh::new(size);
        mesh.kill(0);
        mesh.run(Duration::from_secs(1));
        assert_eq!(mesh.controller(), Some(1), "mesh of {size}");
    }
}

#[test]
fn ten_controllers_in_a_row_are_replaced() {
    let mut mesh = Mesh::new(12);
    for killed in 0..10 {
        mesh.kill(killed);
        let left: Vec<NodeId> = mesh.alive().into_iter().map(Mesh::id).collect();
        for n in mesh.alive() {
            mesh.input(n, candidates(left.clone()));
        }
        mesh.run(Duration::from_secs(1));
        assert_eq!(mesh.controller(), Some(killed + 1));
    }
}

#[test]
fn a_frozen_controller_is_replaced_and_steps_down_when_it_wakes() {
    let mut mesh = Mesh::new(5);
    mesh.frozen.push(0);
    mesh.run(Duration::from_secs(3));
    assert_eq!(mesh.controller(), Some(1));
    mesh.frozen.clear();
    mesh.run(Duration::from_secs(1));
    assert_eq!(mesh.controller(), Some(1));
}

#[test]
fn one_standby_with_a_bad_link_deposes_nobody() {
    let mut mesh = Mesh::new(5);
    mesh.cut.push((0, 1));
    mesh.run(Duration::from_secs(30));
    assert_eq!(mesh.controller(), Some(0));
}

#[test]
fn halves_of_a_split_mesh_each_have_a_controller_and_agree_when_healed() {
    let mut mesh = Mesh::new(5);
    for a in [0, 1] {
        for b in [2, 3, 4] {
            mesh.cut.push((a, b));
        }
    }
    // SWIM tells each half that the other is dead.
    for (side, others) in [(vec![0, 1], vec![2, 3, 4]), (vec![2, 3, 4], vec![0, 1])] {
        let ids: Vec<NodeId> = side.iter().map(|n| Mesh::id(*n)).collect();
        for n in side {
            mesh.input(n, candidates(ids.clone()));
            for other in &others {
                mesh.input(n, Input::Down(Mesh::id(*other)));
            }
        }
    }
    mesh.run(Duration::from_secs(3));
    let follows = |mesh: &Mesh, n: usize| mesh.nodes[n].as_ref().unwrap().reign().unwrap();
    assert_eq!(follows(&mesh, 1).controller, Mesh::id(0));
    assert_eq!(follows(&mesh, 4).controller, Mesh::id(2));
    mesh.cut.clear();
    mesh.meet();
    mesh.run(Duration::from_secs(1));
    assert_eq!(mesh.controller(), Some(2));
}

#[test]
fn a_node_that_returns_with_an_old_high_term_disturbs_nobody() {
    let mut mesh = Mesh::new(3);
    let config = Config::default();
    mesh.nodes.push(Some(Election::new(key(3), Term(70), config, mesh.now)));
    mesh.stored.push(Vec::new());
    mesh.meet();
    mesh.run(Duration::from_secs(30));
    assert_eq!(mesh.controller(), Some(0));
    // Its own next claim would still be higher than all it ever made.
    assert!(mesh.nodes[3].as_ref().unwrap().term() >= Term(70));
}

#[test]
fn a_controller_that_was_restarted_and_is_still_followed_reigns_again() {
    let mut mesh = Mesh::new(4);
    assert_eq!(mesh.controller(), Some(0));
    let before = mesh.nodes[1].as_ref().unwrap().term();
    // So soon that nobody took it for dead, and with a disk that knows nothing of its reign.
    mesh.nodes[0] = Some(Election::new(key(0), Term(0), Config::default(), mesh.now));
    mesh.meet();
    mesh.run(Duration::from_secs(5));
    assert!(mesh.controller().is_some());
    assert!(mesh.nodes[1].as_ref().unwrap().term() > before);
}

#[test]
fn a_controller_that_answers_but_does_not_reign_is_replaced() {
    let mut mesh = Mesh::new(4);
    let other = Election::new(key(0), Term(0), Config::default(), mesh.now);
    mesh.nodes[0] = Some(other);
    // It could not reign again: it is not among those who could.
    let ids: Vec<NodeId> = (1..4).map(Mesh::id).collect();
    for n in 0..4 {
        mesh.input(n, candidates(ids.clone()));
    }
    mesh.run(Duration::from_secs(10));
    assert_eq!(mesh.controller(), Some(1));
}

#[test]
fn a_claim_that_never_arrived_is_learnt_by_comparing() {
    let claim = key(9).sign(Claim { term: Term(50), why: Why::NoController });
    let mut knows = Election::new(key(0), Term(0), Config::default(), Instant::ZERO);
    knows.handle(Input::Heard(claim.clone()), Instant::ZERO, &mut Outbox::new());
    // It does not matter which of the two begins.
    for begins in [0, 1] {
        let mut lacks = Election::new(key(1), Term(0), Config::default(), Instant::ZERO);
        let peers = [&mut knows, &mut lacks];
        let other = peers[1 - begins].me();
        let mut queue = vec![(begins, Input::Compare(other))];
        while let Some((at, input)) = queue.pop() {
            let mut out = Outbox::new();
            peers[at].handle(input, Instant::ZERO, &mut out);
            for effect in out.drain() {
                if let Effect::Send(_, message) = effect {
                    let from = peers[at].me();
                    queue.push((1 - at, Input::Received(from, message)));
                }
            }
        }
        assert_eq!(lacks.claim(), Some(&claim));
    }
}

#[test]
fn a_term_is_on_disk_before_it_is_claimed() {
    let config = Config { listen: Duration::ZERO, ..Config::default() };
    let mut election = Election::new(key(0), Term(4), config, Instant::ZERO);
    let mut out = Outbox::new();
    election.handle(candidates(vec![key(0).id()]), Instant::ZERO, &mut out);
    election.handle(Input::Deadline, Instant::ZERO, &mut out);
    assert_eq!(out.drain().collect::<Vec<_>>(), [Effect::StoreTerm(Term(5))]);
    assert_eq!(election.reign(), None);
    election.handle(Input::TermStored(Term(5)), Instant::ZERO, &mut out);
    assert!(election.is_controller());
    assert!(matches!(out.drain().last(), Some(Effect::Broadcast(_))));
}

#[test]
fn a_claim_heard_while_the_disk_is_busy_wins() {
    let config = Config { listen: Duration::ZERO, ..Config::default() };
    let mut election = Election::new(key(0), Term(0), config, Instant::ZERO);
    let mut out = Outbox::new();
    election.handle(candidates(vec![key(0).id()]), Instant::ZERO, &mut out);
    election.handle(Input::Deadline, Instant::ZERO, &mut out);
    let other = key(7).sign(Claim { term: Term(1), why: Why::Alone });
    election.handle(Input::Heard(other), Instant::ZERO, &mut out);
    election.handle(Input::TermStored(Term(1)), Instant::ZERO, &mut out);
    assert_eq!(election.reign().unwrap().controller, key(7).id());
}

#[test]
fn two_claims_of_one_term_are_settled_by_the_higher_id_everywhere() {
    let claims: Vec<_> =
        [1, 2].map(|n| key(n).sign(Claim { term: Term(9), why: Why::NoController })).into();
    let higher = claims.iter().map(Signed::signer).max().unwrap();
    for order in [[0, 1], [1, 0]] {
        let mut election = Election::new(key(0), Term(0), Config::default(), Instant::ZERO);
        for at in order {
            let heard = Input::Heard(claims[at].clone());
            election.handle(heard, Instant::ZERO, &mut Outbox::new());
        }
        assert_eq!(election.reign().unwrap().controller, higher);
    }
}

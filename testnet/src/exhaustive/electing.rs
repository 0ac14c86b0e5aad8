//! The model of elections: three nodes that may reign, their claims and suspicions, over a network
//! that loses, doubles, delays and reorders; nodes that take each other for dead when it is not so,
//! disks that take their time, and daemons that crash.
//!
//! Each node has its own clock, which stands still but when a timer of its goes off: it then shows
//! the very time of the timer. So clocks differ by as much as can be, and timers go off in any
//! order with all else.

#[cfg(test)]
mod tests;
mod voter;

use std::collections::HashMap;
use std::fmt;

use gpuvine::core::signed::Key;

use self::voter::{Note, Turn, Voter};
use super::checker::{Model, Sights, Step};
use super::pool::{FastBuild, Pool};
use crate::sim::invariants::Violation;

/// Nodes that may reign.
const NODES: usize = 3;

/// How far the model goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Terms: the record of a later one never gets to a disk.
    pub terms: u64,
    /// Times that timers go off.
    pub timers: u8,
    /// Times that a node takes another for dead.
    pub deaths: u8,
    /// Crashes.
    pub crashes: u8,
    /// Times that a node compares its reign with that of another.
    pub compares: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { terms, timers, deaths, crashes, compares } = self;
        write!(
            f,
            "{NODES} nodes, {terms} terms; in all {timers} timers, {deaths} taken for dead, "
        )?;
        write!(f, "{crashes} crashes, {compares} comparisons")
    }
}

/// Ways to break what a daemon owes its election, each to prove that a rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A node begins anew and does not say so.
    Amnesia,
    /// A claim that arrived is not passed on.
    Deaf,
    /// A disk loses terms that it said were stored.
    ForgetTerms,
    /// Two machines have one key: a disk was copied.
    SameKey,
    /// A node is told that a term is stored before it is.
    SpeakFirst,
}

/// What can happen. Nodes and notes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It compares reigns with another.
    Compare(usize),
    /// Its daemon is killed and started again.
    Crash,
    /// It takes another for dead.
    Down(usize),
    /// It hears a note.
    Hear(u32),
    /// Its term is on disk.
    Sync,
    /// Its timer goes off.
    Timer,
}

/// A state: what each node is, what is under way, and what is left of what may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    voters: [u32; NODES],
    net: u32,
    left: Limits,
}

/// What a node answered.
#[derive(Clone, Debug)]
struct Answer {
    next: u32,
    notes: Vec<u32>,
    sights: Sights,
}

/// The model.
#[derive(Debug)]
pub struct Electing {
    keys: [Key; NODES],
    limits: Limits,
    sabotage: Option<Sabotage>,
    voters: Pool<Voter>,
    notes: Pool<Note>,
    nets: Pool<Vec<u32>>,
    answers: HashMap<(u32, Event), Result<Answer, Violation>, FastBuild>,
}

/// What the model must be able to do, by bits.
const SIGHTS: [&str; 7] = [
    "two nodes reign at once",
    "two nodes reign in one term",
    "a second term begins",
    "a node that was restarted claims anew",
    "a controller is given up as unreachable",
    "a controller hears of a higher reign",
    "a node tells another of a higher reign",
];

impl Electing {
    /// A model with these limits, and perhaps a break that its rules must see.
    pub fn new(limits: Limits, sabotage: Option<Sabotage>) -> Self {
        let seeds = if sabotage == Some(Sabotage::SameKey) { [1, 1, 3] } else { [1, 2, 3] };
        Self {
            keys: seeds.map(|seed| Key::from_seed(&[seed; 32])),
            limits,
            sabotage,
            voters: Pool::default(),
            notes: Pool::default(),
            nets: Pool::default(),
            answers: HashMap::default(),
        }
    }

    fn happen(&mut self, at: u32, event: Event) -> Result<Answer, Violation> {
        if let Some(known) = self.answers.get(&(at, event)) {
            return known.clone();
        }
        let mut voter = self.voters.get(at).clone();
        let mut turn = Turn::new(&self.keys, self.limits.terms, self.sabotage);
        let happened = match event {
            Event::Hear(note) => voter.hear(self.notes.get(note), &mut turn),
            other => voter.happen(other, &mut turn),
        };
        let (said, sights) = (turn.notes, turn.sights);
        let answer = happened.map(|()| {
            let next = self.voters.put(voter);
            let notes = said.into_iter().map(|note| self.notes.put(note)).collect();
            Answer { next, notes, sights }
        });
        self.answers.insert((at, event), answer.clone());
        answer
    }

    fn with(&mut self, net: u32, notes: &[u32]) -> u32 {
        let known = self.nets.get(net);
        if notes.iter().all(|note| known.binary_search(note).is_ok()) {
            return net;
        }
        let mut more = [known.as_slice(), notes].concat();
        more.sort_unstable();
        more.dedup();
        self.nets.put(more)
    }
}

impl Model for Electing {
    type State = State;
    type Action = (usize, Event);

    fn start(&mut self) -> State {
        let mut state =
            State { voters: [0; NODES], net: self.nets.put(Vec::new()), left: self.limits };
        for node in 0..NODES {
            let mut turn = Turn::new(&self.keys, self.limits.terms, self.sabotage);
            let voter = Voter::new(node, &mut turn);
            state.voters[node] = self.voters.put(voter);
        }
        state
    }

    fn actions(&mut self, state: &State, out: &mut Vec<(usize, Event)>) {
        let left = &state.left;
        for note in self.nets.get(state.net) {
            let hears = |node: &usize| self.notes.get(*note).is_for(*node);
            out.extend((0..NODES).filter(hears).map(|node| (node, Event::Hear(*note))));
        }
        for (node, voter) in state.voters.iter().enumerate() {
            let voter = self.voters.get(*voter);
            let others = (0..NODES).filter(|other| *other != node);
            if voter.stores() {
                out.push((node, Event::Sync));
            }
            if left.timers > 0 && voter.deadline().is_some() {
                out.push((node, Event::Timer));
            }
            if left.crashes > 0 {
                out.push((node, Event::Crash));
            }
            if left.deaths > 0 {
                out.extend(others.clone().map(|other| (node, Event::Down(other))));
            }
            if left.compares > 0 {
                out.extend(others.map(|other| (node, Event::Compare(other))));
            }
        }
    }

    fn step(&mut self, state: &State, (node, event): (usize, Event)) -> Step<State> {
        let mut next = *state;
        let answer = self.happen(state.voters[node], event)?;
        next.voters[node] = answer.next;
        next.net = self.with(state.net, &answer.notes);
        let left = &mut next.left;
        match event {
            Event::Compare(_) => left.compares -= 1,
            Event::Crash => left.crashes -= 1,
            Event::Down(_) => left.deaths -= 1,
            Event::Timer => left.timers -= 1,
            Event::Hear(_) | Event::Sync => {}
        }
        Ok((next, answer.sights))
    }

    fn look(&mut self, state: &State) -> Result<Sights, Violation> {
        let mut sights = Sights::default();
        let voters = state.voters.map(|voter| self.voters.get(voter));
        let mut reigns: Vec<_> = voters.iter().filter_map(|voter| voter.reigns()).collect();
        reigns.sort_unstable();
        if reigns.len() > 1 {
            sights.see(0);
        }
        for pair in reigns.windows(2) {
            if pair[0].term == pair[1].term {
                sights.see(1);
            }
            if pair[0] == pair[1] {
                let what = format!("two nodes are the controller of {:?}", pair[0]);
                return Err(Violation { rule: "one_controller_per_reign", what });
            }
        }
        Ok(sights)
    }

    fn missing(&self, seen: Sights) -> Vec<&'static str> {
        let Limits { timers, crashes, compares, .. } = self.limits;
        let wanted = [true, true, true, crashes > 0, timers > 1, true, compares > 0];
        let unseen = |bit: &usize| wanted[*bit] && seen.0 & (1 << bit) == 0;
        (0..SIGHTS.len()).filter(unseen).map(|bit| SIGHTS[bit]).collect()
    }

    fn tell(&self, _: &State, (node, event): (usize, Event)) -> String {
        match event {
            Event::Hear(note) => format!("node {node} hears {:?}", self.notes.get(note)),
            other => format!("node {node}: {other:?}"),
        }
    }
}

//! The model of leases: two nodes with one GPU each, two homes with one job each, and two rival
//! controllers whose views of the nodes are as old as can be, over a network that loses, doubles,
//! delays and reorders. The ledgers, the job machines with their attempts and the controllers with
//! their placement are the machines of the core; the hands around them are as thin as the
//! daemon's.
//!
//! No symmetry is made use of: placement prefers the smaller node id, and the reign of one
//! controller is higher than that of the other, so that no two names could be exchanged.

mod cast;
mod desk;
mod home;
mod host;
pub mod limits;
mod note;
mod rules;
pub mod sabotage;
mod sights;
#[cfg(test)]
mod tests;
mod world;

use std::collections::HashMap;

use gpuvine::core::task::TaskId;

use self::cast::{Cast, NODES};
use self::home::Home;
use self::host::Host;
use self::limits::Limits;
use self::note::Note;
use self::rules::{HomeFacts, HostFacts};
use self::sabotage::Sabotage;
use super::checker::Sights;
use super::pool::{FastBuild, Pool};
use crate::sim::invariants::Violation;

/// What is left of what may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    timers: u8,
    unreachable: u8,
    crashes: u8,
    home_crashes: u8,
    reboots: u8,
    cancels: u8,
    failures: u8,
}

/// A state: what each part is, by its number, and what is left of what may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    hosts: [u32; NODES],
    homes: [u32; NODES],
    /// What is under way for each job.
    nets: [u32; NODES],
    budget: Budget,
}

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// At a home.
    #[expect(private_interfaces, reason = "only to be handed back")]
    Home(usize, home::Event),
    /// At a node.
    #[expect(private_interfaces, reason = "only to be handed back")]
    Host(usize, host::Event),
}

/// What came of an event at one part.
#[derive(Clone, Debug)]
struct Answer {
    next: u32,
    /// What it said: for which job, and which note.
    notes: Vec<(usize, u32)>,
    sights: Sights,
    /// Whether a stream was wanted and could not be opened.
    alone: bool,
}

/// The number of the stream of a job that is open, if one is.
type Open = Option<u8>;

/// What a part has answered before: it will answer the same again.
type Known<E> = HashMap<(u32, E), Result<Answer, Violation>, FastBuild>;

/// The model.
#[derive(Debug)]
pub struct Leasing {
    cast: Cast,
    notes: Pool<Note>,
    nets: Pool<Vec<u32>>,
    hosts: Pool<Host>,
    homes: Pool<Home>,
    host_facts: Vec<HostFacts>,
    home_facts: Vec<HomeFacts>,
    host_answers: Known<host::Event>,
    home_answers: Known<home::Event>,
    /// What a controller may grant to a task on a node, by what the node is.
    grants: HashMap<(u8, TaskId, u32), Vec<u32>, FastBuild>,
    /// What is under way for a job, and what of it can still change something at this home.
    live_nets: HashMap<(u32, u32), u32, FastBuild>,
    /// The same of what nodes remember of streams, by those that are open.
    live_hosts: HashMap<(u32, [Open; NODES]), u32, FastBuild>,
}

impl Leasing {
    /// A model with these limits, and perhaps a break that its rules must see.
    pub fn new(limits: Limits, sabotage: Option<Sabotage>) -> Self {
        Self {
            cast: Cast::new(limits, sabotage),
            notes: Pool::default(),
            nets: Pool::default(),
            hosts: Pool::default(),
            homes: Pool::default(),
            host_facts: Vec::new(),
            home_facts: Vec::new(),
            host_answers: Known::default(),
            home_answers: Known::default(),
            grants: HashMap::default(),
            live_nets: HashMap::default(),
            live_hosts: HashMap::default(),
        }
    }

    /// The same, where of the rules over all parts only this one is kept.
    #[must_use]
    pub fn watching(mut self, rule: &'static str) -> Self {
        self.cast.watched = Some(rule);
        self
    }
}

//! Owns the machines of one node; routes inputs to them and forwards their effects.
//!
//! This is where everything meets, so it decides nothing: one arm for each input, one for each
//! effect of each machine, each calling one function. What a machine causes in another is handled
//! before [`Node::handle`] returns; what must happen outside comes back as [`Effect`]s, in order.

mod census;
mod config;
mod route;
#[cfg(test)]
mod tests;

use rand::rngs::ChaCha12Rng;
use rand::{RngExt as _, SeedableRng as _};

pub use self::census::Census;
pub use self::config::Config;
use super::controller::{self, Controller};
use super::directory::Directory;
use super::election::{self, Election};
use super::id::{Incarnation, NodeId, Reign, Term, Version};
use super::job::{self, Jobs};
use super::ledger::{self, Ledger};
use super::membership::{self, Membership};
use super::message::{Gossip, Message};
use super::neighbours::{self, Neighbours};
use super::outbox::Outbox;
use super::repair::{self, Repair};
use super::report::{Gpu, NO_PLACE, NodeState, Report};
use super::reporting::{self, Reporting};
use super::rights::{Met, Rights};
use super::signed::{Key, Signed};
use super::time::{Instant, WallTime, earliest};

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Where this node can be dialled.
    Addresses(Vec<String>),
    /// The deadline has come.
    Deadline,
    /// A dial failed.
    DialFailed(NodeId),
    /// A peer was found in the neighbourhood.
    Discovered(NodeId, Vec<String>),
    /// Something came by gossip.
    Gossiped(Gossip),
    /// The GPUs were looked at: they are these, or there are none because of that.
    Inventory(Vec<Gpu>, Option<String>),
    /// About a job of this home.
    Job(job::Input),
    /// The operator wants the node to leave the mesh.
    Leave,
    /// About a lease of this node.
    Ledger(ledger::Input),
    /// A link was opened.
    Linked(NodeId),
    /// Bytes of memory that are available.
    MemoryFree(u64),
    /// What proves this node's membership to those who hear of it by others.
    Proof(Vec<u8>),
    /// A message came over a link.
    Received(NodeId, Message),
    /// A member has proven what it may do; said before its link is, and before its report is.
    Recognized(NodeId, Rights),
    /// A term is on disk.
    TermStored(Term),
    /// A link is gone.
    Unlinked(NodeId),
}

/// What a node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Dial a member.
    Dial(NodeId, Vec<String>),
    /// Dial an address that the user gave.
    DialAddress(String),
    /// Another controller is followed.
    Followed(Reign),
    /// Tell everybody.
    Gossip(Gossip),
    /// Close a link.
    Hangup(NodeId),
    /// For a job of this home. Never `Control` or `Present`: those become messages here.
    Job(job::Effect),
    /// For a lease of this node. Never `Changed`: that becomes a report here.
    Ledger(ledger::Effect),
    /// What this node knows of the mesh has changed.
    MeshChanged,
    /// Send this over a link.
    Send(NodeId, Message),
    /// Keep the incarnation, which had to be raised.
    StoreIncarnation(Incarnation),
    /// Keep the place in the order of arrival: the node is a member from now on.
    StoreSeniority(u64),
    /// Keep this term; [`Input::TermStored`] answers.
    StoreTerm(Term),
}

/// How much a node keeps for what is under way: each number is bounded by its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Timers of SWIM.
    pub timers: usize,
    /// Messages for peers without a link.
    pub parked: usize,
    /// Requests in the queue of the controller.
    pub waiting: usize,
    /// Grants of the controller that are under way.
    pub granted: usize,
    /// Jobs of this home that have not ended.
    pub unended: usize,
    /// Tasks with a lease.
    pub leases: usize,
    /// Jobs whose latest attempt is remembered.
    pub attempts: usize,
}

/// One node: its machines.
#[derive(Debug)]
pub struct Node {
    me: NodeId,
    key: Key,
    seniority: Option<u64>,
    incarnation: Incarnation,
    candidates: Vec<NodeId>,
    vacant: bool,
    met: Met,
    membership: Membership,
    directory: Directory,
    repair: Repair,
    election: Election,
    neighbours: Neighbours,
    reporting: Reporting,
    controller: Controller,
    ledger: Ledger,
    jobs: Jobs,
}

impl Node {
    /// A node that has just started and knows only itself.
    pub fn new(config: Config, now: Instant) -> Self {
        let me = config.key.id();
        let mut rng = ChaCha12Rng::from_seed(config.seed);
        let first = Version(rng.random::<u32>().into());
        let mut fork = || ChaCha12Rng::from_rng(&mut rng);
        let key = config.key;
        // One who does not know its place yet comes after all others.
        let seniority = config.seniority.unwrap_or(NO_PLACE);
        let mut reporting =
            Reporting::new(key.clone(), config.incarnation, first, seniority, config.facts);
        let mut ledger = Ledger::new(me, config.incarnation, config.ledger);
        if !config.rights.node {
            // It says so itself, so that nobody has to meet it to know.
            reporting = reporting.draining();
            ledger.handle(ledger::Input::State(NodeState::Draining), &mut Outbox::new());
        }
        let mut met = Met::default();
        met.meet(me, config.rights);
        let mut directory = Directory::new();
        directory.insert(reporting.signed().clone(), now);
        directory.mark(me, true, now);
        let mut node = Self {
            me,
            seniority: config.seniority,
            incarnation: config.incarnation,
            candidates: Vec::new(),
            vacant: true,
            met,
            membership: Membership::new(me, config.incarnation, fork()),
            repair: Repair::new(fork()),
            election: Election::new(key.clone(), config.term, config.election, now),
            neighbours: Neighbours::new(me, config.bootstrap, config.remembered, fork()),
            controller: Controller::new(key.clone(), config.controller),
            ledger,
            jobs: Jobs::new(me),
            directory,
            reporting,
            key,
        };
        let mut out = Outbox::new();
        node.rank(now, WallTime(0), &mut out);
        debug_assert!(out.is_empty(), "a new node waits for its first input");
        node
    }

    /// Which node this is.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Whether it founded its mesh, or some member of it has ever admitted it.
    pub fn is_admitted(&self) -> bool {
        self.seniority.is_some()
    }

    /// What is known of the mesh.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The GPUs that a member offers: none if it is known that it may not run tasks.
    pub fn offered<'a>(&self, report: &'a Report) -> &'a [Gpu] {
        if self.met.may_serve(report.node) { &report.gpus } else { &[] }
    }

    /// Whether a member may run tasks, as far as is known.
    pub fn may_serve(&self, node: NodeId) -> bool {
        self.met.may_serve(node)
    }

    /// Who reigns.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The jobs of this home.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The leases of this node.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The desk of the controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The links of this node.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// How much is kept for what is under way.
    pub fn load(&self) -> Load {
        Load {
            timers: self.membership.timers(),
            parked: self.neighbours.parked(),
            waiting: self.controller.waiting(),
            granted: self.controller.grants().count(),
            unended: self.jobs.unended(),
            leases: self.ledger.tasks(),
            attempts: self.ledger.attempts(),
        }
    }

    /// What this node says of itself.
    pub fn report(&self) -> &Report {
        self.reporting.signed().value()
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        earliest([
            self.membership.deadline(),
            self.repair.deadline(),
            self.election.deadline(),
            self.neighbours.deadline(),
            self.reporting.deadline(),
            self.controller.deadline(),
            self.jobs.deadline(),
        ])
    }

    /// Handles one input; `at` is the time for people.
    pub fn handle(&mut self, input: Input, now: Instant, at: WallTime, out: &mut Outbox<Effect>) {
        let mut turn = Turn { now, at, out, presenting: false };
        match input {
            Input::Addresses(list) => {
                self.tell_reporting(reporting::Input::Addresses(list), &mut turn);
            }
            Input::Deadline => self.on_deadline(&mut turn),
            Input::DialFailed(node) => self.on_dial_failed(node, &mut turn),
            Input::Discovered(node, list) => {
                self.tell_neighbours(neighbours::Input::Known(node, list), &mut turn);
            }
            Input::Gossiped(Gossip::Claim(claim)) => {
                self.tell_election(election::Input::Heard(claim), &mut turn);
            }
            Input::Gossiped(Gossip::Report(report)) => self.learn(report, &mut turn),
            Input::Inventory(gpus, note) => self.on_inventory(gpus, note, &mut turn),
            Input::Job(input) => self.tell_jobs(input, &mut turn),
            Input::Leave => self.on_leave(&mut turn),
            Input::Ledger(input) => self.tell_ledger(input, &mut turn),
            Input::Linked(node) => self.on_linked(node, &mut turn),
            Input::MemoryFree(bytes) => {
                self.tell_reporting(reporting::Input::MemoryFree(bytes), &mut turn);
            }
            Input::Proof(proof) => {
                self.tell_reporting(reporting::Input::Proof(proof), &mut turn);
            }
            Input::Received(from, message) => self.on_received(from, message, &mut turn),
            Input::Recognized(node, rights) => self.on_recognized(node, rights, &mut turn),
            Input::TermStored(term) => {
                self.tell_election(election::Input::TermStored(term), &mut turn);
            }
            Input::Unlinked(node) => self.on_unlinked(node, &mut turn),
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn<'_>) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= turn.now);
        let membership = due(self.membership.deadline());
        let repair = due(self.repair.deadline());
        let election = due(self.election.deadline());
        let neighbours = due(self.neighbours.deadline());
        let reporting = due(self.reporting.deadline());
        let controller = due(self.controller.deadline());
        let jobs = due(self.jobs.deadline());
        if membership {
            self.tell_membership(membership::Input::Deadline, turn);
        }
        if repair {
            self.tell_repair(repair::Input::Deadline, turn);
            for node in self.directory.forget(turn.now) {
                self.met.forget(node);
                self.tell_neighbours(neighbours::Input::Forgotten(node), turn);
            }
            self.look_for_lost(turn);
        }
        if election {
            self.tell_election(election::Input::Deadline, turn);
        }
        if neighbours {
            self.tell_neighbours(neighbours::Input::Deadline, turn);
        }
        if reporting {
            self.tell_reporting(reporting::Input::Deadline, turn);
        }
        if controller {
            self.tell_controller(controller::Input::Deadline, turn);
        }
        if jobs {
            self.tell_jobs(job::Input::Deadline, turn);
        }
    }

    fn on_recognized(&mut self, node: NodeId, rights: Rights, turn: &mut Turn<'_>) {
        if self.met.meet(node, rights) {
            self.tell_controller(controller::Input::FleetChanged(node), turn);
            turn.out.push(Effect::MeshChanged);
        }
    }

    fn on_linked(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        self.tell_neighbours(neighbours::Input::Linked(node), turn);
        self.tell_membership(membership::Input::Met(node), turn);
        self.tell_repair(repair::Input::Linked(node), turn);
        self.tell_election(election::Input::Linked(node), turn);
        self.tell_controller(controller::Input::Linked(node), turn);
        // What was said to a controller before there was a link may be lost.
        if let Some(reign) = self.election.reign().filter(|reign| reign.controller == node) {
            self.tell_jobs(job::Input::Controller(Some(reign)), turn);
        }
        self.tell_jobs(job::Input::NodeUp(node), turn);
        turn.out.push(Effect::MeshChanged);
    }

    fn on_unlinked(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        self.tell_neighbours(neighbours::Input::Unlinked(node), turn);
        self.tell_repair(repair::Input::Unlinked(node), turn);
        // What is closed on purpose can be opened again.
        if !self.membership.parts_with(node, turn.now) {
            self.tell_controller(controller::Input::Unlinked(node), turn);
            self.look_for_lost(turn);
        }
        self.tell_election(election::Input::Unlinked(node), turn);
        self.tell_membership(membership::Input::LinkLost(node), turn);
        turn.out.push(Effect::MeshChanged);
    }

    fn on_dial_failed(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        self.tell_neighbours(neighbours::Input::DialFailed(node), turn);
        self.tell_membership(membership::Input::Unreachable(node), turn);
        self.tell_election(election::Input::DialFailed(node), turn);
    }

    fn on_received(&mut self, from: NodeId, message: Message, turn: &mut Turn<'_>) {
        match message {
            Message::Control(message) => self.control(from, message, turn),
            Message::Election(message) => {
                self.tell_election(election::Input::Received(from, message), turn);
            }
            Message::Relay(relayed) => self.relay(relayed, turn),
            Message::Repair(message) => {
                self.tell_repair(repair::Input::Received(from, message), turn);
            }
            Message::Swim(bytes) => {
                self.tell_membership(membership::Input::Datagram(from, bytes.into_vec()), turn);
            }
        }
    }

    fn on_inventory(&mut self, gpus: Vec<Gpu>, note: Option<String>, turn: &mut Turn<'_>) {
        self.tell_ledger(ledger::Input::Inventory(gpus), turn);
        self.tell_reporting(reporting::Input::Note(note), turn);
    }

    fn on_leave(&mut self, turn: &mut Turn<'_>) {
        self.tell_ledger(ledger::Input::State(NodeState::Leaving), turn);
        self.tell_reporting(reporting::Input::State(NodeState::Leaving), turn);
        let goodbye = self.reporting.signed().clone();
        let links: Vec<NodeId> = self.neighbours.links().iter().copied().collect();
        for peer in links {
            self.send_changed(peer, goodbye.clone(), turn);
        }
        self.tell_membership(membership::Input::Leave, turn);
    }
}

/// What one call of [`Node::handle`] passes along.
struct Turn<'a> {
    now: Instant,
    at: WallTime,
    out: &'a mut Outbox<Effect>,
    /// A member presents itself: its report is read before its requests are.
    presenting: bool,
}

/// A signed report and a name for it.
type SignedReport = Signed<Report>;

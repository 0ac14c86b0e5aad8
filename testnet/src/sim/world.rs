//! The world: machines, the network between them, users, and one line of time through all of it.
//!
//! It drives the very core that the daemon drives. What the daemon does around the core (streams,
//! keepers, the disk) is done here in small, with the same answers to the same questions; every
//! event is one call of [`World::step`].

mod doubles;
mod event;
mod faults;
mod folders;
mod hands;
mod home;
mod host;
mod medium;
mod power;
mod users;

use std::collections::BTreeMap;

use gpuvine::core::grant::Grant;
use gpuvine::core::id::{JobId, NodeId};
use gpuvine::core::node::{Input, Node};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::signed::Signed;
use gpuvine::core::time::{Duration, Instant, WallTime};
use rand::rngs::ChaCha12Rng;

pub(crate) use self::event::{Event, News, Spawn, Step, User};
pub(crate) use self::faults::Undo;
use super::agenda::Agenda;
use super::invariants::{Checks, Fact, Violation};
use super::machine::{Machine, Temper};
use super::network::Network;
use super::options::Options;
use super::sabotage::Sabotage;
use super::streams::{Stream, StreamId};
use super::trace::Trace;

/// Events at one instant beyond which somebody is running in circles.
const SAME_INSTANT_MAX: u32 = 100_000;

/// All of it.
#[derive(Debug)]
pub struct World {
    /// What was drawn.
    pub options: Options,
    pub(crate) now: Instant,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) ids: BTreeMap<NodeId, usize>,
    pub(crate) network: Network,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    streams_made: u64,
    openings_made: u64,
    /// Grants that ledgers have not answered.
    presented: BTreeMap<u64, Signed<Grant>>,
    pub(crate) tempers: BTreeMap<JobId, Temper>,
    /// Chance in what happens around the core, and in what goes wrong.
    pub(crate) rng: ChaCha12Rng,
    pub(crate) chance: ChaCha12Rng,
    pub(crate) checks: Checks,
    pub(crate) trace: Trace,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) striking: bool,
    /// No process can be started.
    pub(crate) starts_fail: bool,
    /// Jobs that show whether the mesh works again.
    pub(crate) probes: Vec<(usize, JobId)>,
    events: u64,
    same_instant: u32,
}

impl World {
    /// Machines that have just been unpacked, before any daemon runs.
    pub fn new(options: Options, keep_trace: bool) -> Self {
        let machines: Vec<Machine> = options
            .gpus
            .iter()
            .enumerate()
            .map(|(index, gpus)| Machine::new(index, *gpus))
            .collect();
        Self {
            now: Instant::from_nanos(1_000_000_000),
            agenda: Agenda::new(),
            ids: machines.iter().enumerate().map(|(index, machine)| (machine.id, index)).collect(),
            machines,
            network: Network::new(options.rng(1), options.latency),
            streams: BTreeMap::new(),
            streams_made: 0,
            openings_made: 0,
            presented: BTreeMap::new(),
            tempers: BTreeMap::new(),
            rng: options.rng(2),
            chance: options.rng(3),
            checks: Checks::new(),
            trace: Trace::new(keep_trace),
            sabotage: None,
            striking: false,
            starts_fail: false,
            probes: Vec::new(),
            events: 0,
            same_instant: 0,
            options,
        }
    }

    /// What rule was broken, if one was.
    pub fn violation(&self) -> Option<&Violation> {
        self.checks.violation()
    }

    /// What happened.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// How much happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Instant::from_nanos(1_000_000_000))
    }

    /// Lets virtual time pass, unless a rule is broken.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.violation().is_none() && self.agenda.next().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// One event.
    pub fn step(&mut self) {
        let Some((at, event)) = self.agenda.pop() else { return };
        self.events += 1;
        self.same_instant = if at > self.now { 0 } else { self.same_instant + 1 };
        self.now = self.now.max(at);
        if self.same_instant > SAME_INSTANT_MAX {
            self.checks.fail("nobody_runs_in_circles", format!("at {}: {event:?}", self.now));
            return;
        }
        self.happen(event);
    }

    fn happen(&mut self, event: Event) {
        if let Event::Process { machine, .. } | Event::Spawn { machine, .. } = &event
            && self.machines[*machine].asleep
        {
            self.machines[*machine].held.push_back(event);
            return;
        }
        if let Some((machine, life)) = event.place() {
            let at = &mut self.machines[machine];
            if !at.is_up() || life.is_some_and(|life| life != at.life) {
                return;
            }
            if at.frozen {
                at.held.push_back(event);
                return;
            }
        }
        match event {
            Event::Arrive { link, to, cargo } => self.on_arrive(link, to, cargo),
            Event::Calm => self.on_calm(),
            Event::Commit { machine, .. } => self.on_commit(machine),
            Event::Written { machine, .. } => self.on_written(machine),
            Event::DialFailed { machine, peer, .. } => self.on_dial_failed(machine, peer),
            Event::Dialled { from, life, to } => self.on_dialled(from, life, to),
            Event::Gossip { to, gossip, .. } => self.input(to, Input::Gossiped(gossip)),
            Event::Keeper { machine, task, news, .. } => self.on_news(machine, task, news),
            Event::Linked { link, at } => self.on_linked(link, at),
            Event::LinkGone { link, at, peer } => self.on_link_gone(link, at, peer),
            Event::LinkCheck { link, since } => self.on_link_check(link, since),
            Event::Local { stream, frame, to_home, .. } => self.on_frame(stream, frame, to_home),
            Event::Opened { machine, number, .. } => self.on_opened(machine, number),
            Event::Patience { stream, .. } => self.on_patience(stream),
            Event::Process { machine, boot, task, step } => {
                self.on_process(machine, boot, task, step);
            }
            Event::Spawn { machine, life, boot, spawn } => {
                self.on_spawn(machine, life, boot, *spawn);
            }
            Event::StreamWait { machine, number, .. } => self.on_stream_wait(machine, number),
            Event::Strike => self.on_strike(),
            Event::Timer { machine, at, .. } => self.on_timer(machine, at),
            Event::Undo(undo) => self.on_undo(undo),
            Event::User(user) => self.on_user(user),
        }
    }

    fn on_timer(&mut self, machine: usize, at: Instant) {
        let here = &mut self.machines[machine];
        if here.timer != Some(at) {
            return;
        }
        here.timer = None;
        let local = here.clock.local(self.now);
        let due = here.node.as_ref().and_then(Node::deadline).is_some_and(|due| due <= local);
        if self.sabotage == Some(Sabotage::NoTimers) {
            return;
        }
        if due {
            self.input(machine, Input::Deadline);
        } else {
            self.set_timer(machine);
        }
    }

    /// Puts the node's deadline on the agenda, if it is earlier than what is there.
    pub(crate) fn set_timer(&mut self, machine: usize) {
        let here = &mut self.machines[machine];
        let Some(deadline) = here.node.as_ref().and_then(Node::deadline) else { return };
        let at = here.clock.global(deadline).max(self.now);
        if here.timer.is_none_or(|set| at < set) {
            here.timer = Some(at);
            self.agenda.at(at, Event::Timer { machine, life: here.life, at });
        }
    }

    /// The time for people.
    pub(crate) fn wall(&self) -> WallTime {
        WallTime(self.now.as_nanos() / 1_000_000)
    }

    /// One input to a machine's core, and all that it causes.
    pub(crate) fn input(&mut self, machine: usize, input: Input) {
        let wall = self.wall();
        let here = &mut self.machines[machine];
        let local = here.clock.local(self.now);
        let Some(node) = here.node.as_mut() else { return };
        assert!(self.sabotage != Some(Sabotage::Panics), "sabotaged");
        let mut out = Outbox::new();
        node.handle(input, local, wall, &mut out);
        while let Some(effect) = out.pop() {
            self.perform(machine, effect);
        }
        let here = &self.machines[machine];
        if let Some(node) = &here.node {
            self.checks.see(&Fact::Turn { machine, life: here.life, node });
        }
        self.set_timer(machine);
    }

    /// A line of the trace.
    pub(crate) fn say(&mut self, machine: usize, kind: &str, rest: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, machine, kind, rest);
    }
}

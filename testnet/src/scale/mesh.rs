//! A mesh of cores in virtual time, as lean as ten thousand of them want it.
//!
//! It drives the core as the simulator's world does, but has no jobs, no disks that forget and no
//! faults other than those that are measured: links that carry messages in order, dials, gossip,
//! machines that die with or without a word, and daemons that stop for a while.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::id::NodeId;
use gpuvine::core::message::{Gossip, Message};
use gpuvine::core::node::{Effect, Input, Node};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::time::{Duration, Instant, WallTime};
use gpuvine::wire::codec;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::gossip::Overlay;
use super::watch::Watch;
use crate::sim::agenda::Agenda;

/// What a message takes at least; the tail is up to five times that.
const LATENCY: Duration = Duration::from_micros(500);

/// How long a dial waits for a machine that does not answer.
const DIAL_FOR: Duration = Duration::from_secs(5);

/// When the other ends of the links of a machine that lost power find out, at the earliest.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a term takes to be on disk.
const DISK: Duration = Duration::from_millis(3);

/// Something that happens at a machine.
#[derive(Debug)]
enum Event {
    DialFailed { peer: usize },
    Dialled { to: usize },
    Gossip(Box<Gossip>),
    Linked { link: u64, peer: usize },
    LinkGone { link: u64, peer: usize },
    Message { link: u64, from: usize, message: Box<Message> },
    Other(Box<Input>),
    Timer(Instant),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
struct Link {
    id: u64,
    /// When the last message from this end arrives: no later one overtakes it.
    last: Instant,
}

/// A machine, on or off.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) node: Option<Node>,
    links: BTreeMap<usize, Link>,
    /// Its core's timer as it was last put on the agenda.
    timer: Option<Instant>,
    /// Until when it does nothing.
    asleep: Option<Instant>,
    /// Whether it has power.
    silent: bool,
    /// How many members it believed in after its last turn.
    living: usize,
}

/// What went over all links.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// Machines, links, and one line of time through all of it.
#[derive(Debug)]
pub(super) struct Mesh {
    pub(super) now: Instant,
    pub(super) machines: Vec<Machine>,
    /// Which machine is which node, in both directions.
    ids: BTreeMap<NodeId, usize>,
    pub(super) names: Vec<NodeId>,
    pub(super) rng: ChaCha12Rng,
    pub(super) traffic: Traffic,
    /// How often anybody declared anybody dead.
    pub(super) deaths: u64,
    pub(super) dials: u64,
    pub(super) watch: Option<Watch>,
    agenda: Agenda<(usize, Event)>,
    overlay: Option<Overlay>,
    dialling: BTreeSet<(usize, usize)>,
    links_made: u64,
}

impl Mesh {
    /// Machines without a daemon.
    pub(super) fn new(ids: Vec<NodeId>, seed: u64) -> Self {
        let off = || Machine {
            node: None,
            links: BTreeMap::new(),
            timer: None,
            asleep: None,
            silent: false,
            living: 0,
        };
        Self {
            now: Instant::from_nanos(1_000_000_000),
            machines: ids.iter().map(|_| off()).collect(),
            names: ids.clone(),
            ids: ids.into_iter().enumerate().map(|(index, id)| (id, index)).collect(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            traffic: Traffic::default(),
            deaths: 0,
            dials: 0,
            watch: None,
            agenda: Agenda::new(),
            overlay: None,
            dialling: BTreeSet::new(),
            links_made: 0,
        }
    }

    /// Lets time pass; `false` if what is watched has not come about by then.
    pub(super) fn run(&mut self, span: Duration) -> bool {
        let end = self.now + span;
        while self.agenda.next().is_some_and(|at| at <= end) {
            if self.watch.as_ref().is_some_and(Watch::is_over) {
                return true;
            }
            let Some((at, (machine, event))) = self.agenda.pop() else { break };
            self.now = self.now.max(at);
            self.happen(machine, event);
        }
        self.now = end;
        self.watch.as_ref().is_none_or(Watch::is_over)
    }

    /// A daemon starts.
    pub(super) fn start(&mut self, machine: usize, node: Node) {
        let here = &mut self.machines[machine];
        here.living = node.directory().living();
        here.node = Some(node);
        here.timer = None;
        here.silent = false;
        self.set_timer(machine);
    }

    /// A daemon is killed, or its machine loses power and nobody hears of it.
    pub(super) fn end(&mut self, machine: usize, silent: bool) {
        let here = &mut self.machines[machine];
        here.node = None;
        here.silent = silent;
        for (peer, link) in std::mem::take(&mut here.links) {
            let wait = if silent {
                SILENCE + Duration::from_millis(self.rng.random_range(0..4_000))
            } else {
                self.delay()
            };
            let gone = Event::LinkGone { link: link.id, peer: machine };
            self.agenda.at(self.now + wait, (peer, gone));
        }
        self.dialling.retain(|(from, _)| *from != machine);
        self.overlay = None;
    }

    /// A daemon does nothing for a while, and then all at once.
    pub(super) fn sleep(&mut self, machine: usize, span: Duration) {
        self.machines[machine].asleep = Some(self.now + span);
    }

    /// Links of a machine, on average.
    pub(super) fn links(&self) -> f64 {
        let up = self.machines.iter().filter(|machine| machine.node.is_some());
        let (count, ends) =
            up.fold((0, 0), |(count, ends), machine| (count + 1, ends + machine.links.len()));
        ends as f64 / f64::from(count.max(1))
    }

    /// One input to a machine's core, and all that it causes.
    pub(super) fn input(&mut self, machine: usize, input: Input) {
        let Some(node) = self.machines[machine].node.as_mut() else { return };
        let mut out = Outbox::new();
        node.handle(input, self.now, WallTime(self.now.as_nanos() / 1_000_000), &mut out);
        self.after(machine, out);
    }

    /// What a core wants done is done.
    pub(super) fn after(&mut self, machine: usize, mut out: Outbox<Effect>) {
        while let Some(effect) = out.pop() {
            self.perform(machine, effect);
        }
        let here = &mut self.machines[machine];
        if let Some(node) = &here.node {
            let living = node.directory().living();
            self.deaths += here.living.saturating_sub(living) as u64;
            here.living = living;
            if let Some(watch) = &mut self.watch {
                watch.look(machine, node, self.now);
            }
        }
        self.set_timer(machine);
    }

    fn happen(&mut self, machine: usize, event: Event) {
        let here = &mut self.machines[machine];
        if here.node.is_none() {
            return;
        }
        if let Some(until) = here.asleep {
            if until > self.now {
                self.agenda.at(until, (machine, event));
                return;
            }
            here.asleep = None;
        }
        match event {
            Event::DialFailed { peer } => {
                self.dialling.remove(&(machine, peer));
                let id = self.id(peer);
                self.input(machine, Input::DialFailed(id));
            }
            Event::Dialled { to } => self.on_dialled(machine, to),
            Event::Gossip(gossip) => self.input(machine, Input::Gossiped(*gossip)),
            Event::Linked { link, peer } => {
                if here.links.get(&peer).is_some_and(|known| known.id == link) {
                    let id = self.id(peer);
                    self.input(machine, Input::Linked(id));
                }
            }
            Event::LinkGone { link, peer } => {
                if here.links.get(&peer).is_some_and(|known| known.id == link) {
                    here.links.remove(&peer);
                    self.overlay = None;
                    let id = self.id(peer);
                    self.input(machine, Input::Unlinked(id));
                }
            }
            Event::Message { link, from, message } => {
                if here.links.get(&from).is_some_and(|known| known.id == link) {
                    let id = self.id(from);
                    self.input(machine, Input::Received(id, *message));
                }
            }
            Event::Other(input) => self.input(machine, *input),
            Event::Timer(at) => {
                if here.timer == Some(at) {
                    here.timer = None;
                    let deadline = here.node.as_ref().and_then(Node::deadline);
                    if deadline.is_some_and(|due| due <= self.now) {
                        self.input(machine, Input::Deadline);
                    } else {
                        self.set_timer(machine);
                    }
                }
            }
        }
    }

    fn perform(&mut self, machine: usize, effect: Effect) {
        match effect {
            Effect::Dial(node, _) => {
                if let Some(to) = self.ids.get(&node).copied() {
                    self.dial(machine, to);
                }
            }
            Effect::DialAddress(address) => {
                if let Some(to) = address.strip_prefix('m').and_then(|number| number.parse().ok()) {
                    self.dial(machine, to);
                }
            }
            Effect::Gossip(gossip) => self.gossip(machine, &gossip),
            Effect::Hangup(node) => {
                if let Some(peer) = self.ids.get(&node).copied()
                    && let Some(link) = self.machines[machine].links.get(&peer).copied()
                {
                    // Behind what was sent before.
                    let there = link.last.max(self.now) + self.delay();
                    let gone = |peer| Event::LinkGone { link: link.id, peer };
                    self.agenda.at(self.now, (machine, gone(peer)));
                    self.agenda.at(there, (peer, gone(machine)));
                }
            }
            Effect::Send(to, message) => {
                if let Some(to) = self.ids.get(&to).copied() {
                    self.send(machine, to, message);
                }
            }
            Effect::StoreTerm(term) => {
                let stored = Event::Other(Box::new(Input::TermStored(term)));
                self.agenda.at(self.now + DISK, (machine, stored));
            }
            Effect::Followed(_)
            | Effect::Job(_)
            | Effect::Ledger(_)
            | Effect::MeshChanged
            | Effect::StoreIncarnation(_)
            | Effect::StoreSeniority(_) => {}
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let delay = self.delay();
        let Some(link) = self.machines[from].links.get_mut(&to) else { return };
        link.last = link.last.max(self.now + delay);
        let (at, link) = (link.last, link.id);
        self.traffic.messages += 1;
        self.traffic.bytes += codec::encode(&message).len() as u64;
        self.agenda.at(at, (to, Event::Message { link, from, message: Box::new(message) }));
    }

    fn gossip(&mut self, from: usize, gossip: &Gossip) {
        let machines = &self.machines;
        let overlay = self.overlay.get_or_insert_with(|| {
            let up = machines.iter().map(|machine| machine.node.is_some());
            Overlay::of(up.zip(machines.iter().map(|machine| machine.links.keys().copied())))
        });
        let spread = overlay.spread(from, LATENCY, &mut self.rng);
        self.traffic.messages += spread.sent;
        self.traffic.bytes += spread.sent * codec::encode(gossip).len() as u64;
        for (to, after) in spread.reached {
            let event = Event::Gossip(Box::new(gossip.clone()));
            self.agenda.at(self.now + after, (to, event));
        }
    }

    fn dial(&mut self, from: usize, to: usize) {
        if from == to
            || self.machines[from].links.contains_key(&to)
            || !self.dialling.insert((from, to))
        {
            return;
        }
        self.dials += 1;
        let there = self.delay() + self.delay();
        if self.machines[to].node.is_some() {
            self.agenda.at(self.now + there, (from, Event::Dialled { to }));
        } else {
            let wait = if self.machines[to].silent { DIAL_FOR } else { there };
            self.agenda.at(self.now + wait, (from, Event::DialFailed { peer: to }));
        }
    }

    fn on_dialled(&mut self, from: usize, to: usize) {
        self.dialling.remove(&(from, to));
        if self.machines[to].node.is_none() {
            let id = self.id(to);
            self.input(from, Input::DialFailed(id));
            return;
        }
        if self.machines[from].links.contains_key(&to) {
            return;
        }
        self.links_made += 1;
        self.overlay = None;
        let id = self.links_made;
        let there = self.now + self.delay();
        self.machines[from].links.insert(to, Link { id, last: there });
        self.machines[to].links.insert(from, Link { id, last: there });
        self.agenda.at(there, (to, Event::Linked { link: id, peer: from }));
        let peer = self.id(to);
        self.input(from, Input::Linked(peer));
    }

    fn set_timer(&mut self, machine: usize) {
        let here = &mut self.machines[machine];
        let Some(deadline) = here.node.as_ref().and_then(Node::deadline) else { return };
        let at = deadline.max(self.now);
        if here.timer.is_none_or(|set| at < set) {
            here.timer = Some(at);
            self.agenda.at(at, (machine, Event::Timer(at)));
        }
    }

    fn delay(&mut self) -> Duration {
        LATENCY.mul_f64(1.0 + self.rng.random_range(0.0f64..1.0).powi(4) * 4.0)
    }

    fn id(&self, machine: usize) -> NodeId {
        self.names[machine]
    }
}

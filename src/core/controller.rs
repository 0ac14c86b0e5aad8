//! Decides whom this node grants GPUs while it is controller.
//!
//! It holds nothing that cannot be rebuilt. Requests come from their homes, which present them
//! again to every new controller; what is free comes from reports. A grant under way holds its GPUs
//! until a report shows that it was used, its home gives it back, or its time is over; the node's
//! ledger, not this table, is what makes a GPU taken.
//!
//! A new reign first listens: it grants when every living member has presented itself, or after
//! [`Config::settle`], so that a queue from before is known before anybody is served.
//!
//! In: the reign, messages of homes, news of reports. Out: grants and reasons to wait.
//! Always true: no two grants under way share a GPU; a later request never takes what an earlier
//! one could use.

mod barred;
mod fleet;
#[cfg(test)]
mod tests;
mod untried;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

pub use self::fleet::Fleet;
use self::fleet::{any_left, is_settled};
use self::untried::{Untried, is_barred};
use self::waits::Waits;
use super::control::{Ask, Message};
use super::grant::Grant;
use super::id::{Incarnation, NodeId, Reign, Term};
use super::outbox::Outbox;
use super::placement::{Held, Placement, block, feasible};
use super::queue::{Full, Place, Queue, Waiting, older};
use super::request::WaitReason;
use super::signed::{Key, Signed};
use super::task::TaskId;
use super::time::{Duration, Instant, earliest};

/// How a controller behaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// For how long a new reign listens at most. Longer than members take to answer a claim.
    pub settle: Duration,
    /// For how long a home may present a grant. Longer than opening a stream takes.
    pub grant_ttl: Duration,
    /// How long a grant is held beyond that: what a message may take on its way.
    pub grant_margin: Duration,
    /// The least time between two reasons told for one request.
    pub tell_every: Duration,
    /// How many of the first requests are told when their reason changes.
    pub told_max: usize,
    /// For how long a request is kept whose home does not repeat it. A few times what homes wait
    /// before they do.
    pub ask_ttl: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(500),
            grant_ttl: Duration::from_secs(20),
            grant_margin: Duration::from_secs(10),
            tell_every: Duration::from_secs(1),
            told_max: 256,
            ask_ttl: Duration::from_secs(60),
        }
    }
}

/// What the controller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message of a member that may not submit.
    Barred(NodeId, Message),
    /// The deadline has come.
    Deadline,
    /// This node reigns no more.
    Deposed,
    /// Reports have changed, of this node.
    FleetChanged(NodeId),
    /// A member is dead or has left.
    MemberDown(NodeId),
    /// The link with a member is open.
    Linked(NodeId),
    /// A message of a member.
    Received(NodeId, Message),
    /// This node reigns; these others are alive and will present themselves.
    Reigns {
        /// The reign's number.
        term: Term,
        /// The living members.
        members: Vec<NodeId>,
    },
    /// The link with a member is lost.
    Unlinked(NodeId),
}

/// A message to a member. May be this node itself: a home is served like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send(pub NodeId, pub Message);

/// The controller's desk. Idle while another node reigns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    me: NodeId,
    key: Key,
    config: Config,
    reign: Option<Current>,
    /// Nodes whose link was lost and is not back: alive as far as SWIM knows, but nothing is placed
    /// there until they are reached again.
    lost: BTreeSet<NodeId>,
}

/// What lasts for one reign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Current {
    term: Term,
    queue: Queue,
    granted: BTreeMap<TaskId, Granted>,
    /// Members that have not presented themselves, and how long they are waited for.
    settling: Option<(BTreeSet<NodeId>, Instant)>,
    /// When reasons that were held back are told.
    tell_at: Option<Instant>,
    /// When requests are looked for that nobody has repeated.
    sweep_at: Option<Instant>,
}

/// A grant under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granted {
    grant: Signed<Grant>,
    until: Instant,
    /// The start of the home that asked for it: a later one knows nothing of it.
    home: Option<Incarnation>,
}

impl Controller {
    /// A desk at which nobody reigns yet.
    pub fn new(key: Key, config: Config) -> Self {
        Self { me: key.id(), key, config, reign: None, lost: BTreeSet::new() }
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let reign = self.reign.as_ref()?;
        let settled = reign.settling.as_ref().map(|(_, until)| *until);
        let expiry = reign.granted.values().map(|granted| granted.until).min();
        earliest([settled, reign.tell_at, reign.sweep_at, expiry])
    }

    /// What waits here, in order.
    pub fn queue(&self) -> impl Iterator<Item = (&Place, &Waiting)> {
        self.reign.iter().flat_map(|reign| reign.queue.iter())
    }

    /// The grants under way.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        let granted = self.reign.iter().flat_map(|reign| reign.granted.values());
        granted.map(|granted| granted.grant.value())
    }

    /// Whether this node reigns.
    pub fn reigns(&self) -> bool {
        self.reign.is_some()
    }

    /// Nodes on which nothing is placed, because the link with them is lost.
    pub fn lost(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.lost.iter().copied()
    }

    /// How many requests wait here.
    pub fn waiting(&self) -> usize {
        self.reign.as_ref().map_or(0, |reign| reign.queue.len())
    }

    /// Handles one input.
    pub fn handle(
        &mut self,
        input: Input,
        fleet: &Fleet<'_>,
        now: Instant,
        out: &mut Outbox<Send>,
    ) {
        match input {
            Input::Barred(from, message) => self.on_barred(from, message, fleet, now, out),
            Input::Deadline => self.on_deadline(now),
            Input::Deposed => self.reign = None,
            Input::FleetChanged(node) => self.on_fleet_changed(node, fleet),
            Input::Linked(node) => _ = self.lost.remove(&node),
            Input::MemberDown(node) => self.on_member_down(node),
            Input::Received(from, message) => self.on_received(from, message, fleet, now, out),
            Input::Reigns { term, members } => self.on_reigns(term, members, now),
            Input::Unlinked(node) => _ = self.lost.insert(node),
        }
        self.serve(fleet, now, out);
        self.check();
    }

    fn on_reigns(&mut self, term: Term, members: Vec<NodeId>, now: Instant) {
        let members: BTreeSet<NodeId> =
            members.into_iter().filter(|node| *node != self.me).collect();
        self.reign = Some(Current {
            term,
            queue: Queue::default(),
            granted: BTreeMap::new(),
            settling: (!members.is_empty()).then(|| (members, now + self.config.settle)),
            tell_at: None,
            sweep_at: None,
        });
    }

    fn on_deadline(&mut self, now: Instant) {
        let Some(reign) = &mut self.reign else { return };
        if reign.settling.as_ref().is_some_and(|(_, until)| *until <= now) {
            reign.settling = None;
        }
        if reign.tell_at.is_some_and(|at| at <= now) {
            reign.tell_at = None;
        }
        reign.granted.retain(|_, granted| granted.until > now);
        if reign.sweep_at.is_some_and(|at| at <= now) {
            // Its home has dropped it, and the word of that was lost.
            reign.sweep_at = None;
            reign.queue.remove_if(|waiting| now.since(waiting.asked) > self.config.ask_ttl);
        }
    }

    /// A report shows what became of grants: a GPU that was leased since, or another start.
    fn on_fleet_changed(&mut self, node: NodeId, fleet: &Fleet<'_>) {
        let Some(reign) = &mut self.reign else { return };
        let Some(report) = fleet.alive(node) else { return };
        reign.granted.retain(|task, granted| {
            let grant = granted.grant.value();
            let restarted = granted.home.is_some_and(|start| start != report.incarnation);
            let settled = grant.node == node && is_settled(*task, grant, report);
            !(settled || grant.home == node && restarted)
        });
    }

    fn on_member_down(&mut self, node: NodeId) {
        self.lost.remove(&node);
        let Some(reign) = &mut self.reign else { return };
        reign.queue.remove_if(|waiting| waiting.home == node);
        reign.granted.retain(|_, granted| {
            granted.grant.value().node != node && granted.grant.value().home != node
        });
        Self::heard(reign, node);
    }

    /// One less to wait for.
    fn heard(reign: &mut Current, node: NodeId) {
        if let Some((members, _)) = &mut reign.settling {
            members.remove(&node);
            if members.is_empty() {
                reign.settling = None;
            }
        }
    }

    fn on_received(
        &mut self,
        from: NodeId,
        message: Message,
        fleet: &Fleet<'_>,
        now: Instant,
        out: &mut Outbox<Send>,
    ) {
        let Some(reign) = &mut self.reign else {
            // The sender took this node for the controller; the caller knows whom it follows.
            return;
        };
        match message {
            Message::Ask(ask) => Self::on_ask(reign, from, ask, now, out),
            Message::Present { term, asks, .. } if term == reign.term => {
                for ask in asks {
                    Self::on_ask(reign, from, ask, now, out);
                }
                Self::heard(reign, from);
                self.on_fleet_changed(from, fleet);
            }
            Message::Withdraw { task } => {
                if reign.queue.find(task).is_some_and(|waiting| waiting.home == from) {
                    reign.queue.remove(task);
                }
                if reign.granted.get(&task).is_some_and(|held| held.grant.value().home == from) {
                    reign.granted.remove(&task);
                }
            }
            // Answers are for homes, reports for the directory; an old presentation is of no use.
            _ => {}
        }
    }

    fn on_ask(reign: &mut Current, from: NodeId, ask: Ask, now: Instant, out: &mut Outbox<Send>) {
        let task = ask.task;
        let Some(ask) = ask.checked() else {
            tracing::warn!(home = ?from, %task, "a request that no home of ours makes is dropped");
            return;
        };
        // Another home's task: a liar, or an id drawn twice in 2^60.
        let stranger = reign.queue.find(task).is_some_and(|waiting| waiting.home != from)
            || reign.granted.get(&task).is_some_and(|held| held.grant.value().home != from);
        if stranger {
            return;
        }
        if let Some(granted) = reign.granted.get(&task) {
            if !ask.refused.iter().any(|(refused, _)| refused == granted.grant.value()) {
                // The answer was lost, or crossed this repetition: the same grant again.
                out.push(Send(from, Message::Granted(granted.grant.clone())));
                return;
            }
            reign.granted.remove(&task);
        }
        // An older attempt of the same job is over, and with it what was granted to it.
        reign.queue.remove_older(task, from);
        let given_back: Vec<TaskId> = reign
            .granted
            .range(older(task))
            .filter(|(_, held)| held.grant.value().home == from)
            .map(|(older, _)| *older)
            .collect();
        for older in given_back {
            reign.granted.remove(&older);
        }
        if let Err(Full) = reign.queue.insert(reign.term, from, ask, now) {
            out.push(Send(from, Message::Full { task }));
        }
    }

    /// Walks the queue in order: grants what fits, tells the others why they wait.
    fn serve(&mut self, fleet: &Fleet<'_>, now: Instant, out: &mut Outbox<Send>) {
        let Some(reign) = &mut self.reign else { return };
        if !reign.queue.is_empty() {
            reign.sweep_at.get_or_insert(now + self.config.ask_ttl / 4);
        }
        if reign.settling.is_some() || reign.queue.is_empty() {
            return;
        }
        let mut held = Held::default();
        for granted in reign.granted.values() {
            let grant = granted.grant.value();
            grant.gpus.iter().for_each(|(gpu, _)| held.hold(grant.node, gpu));
        }
        let mut blocked = held.clone();
        // Whether no GPU is left for anybody: then a long queue is only counted, not walked.
        let mut exhausted = false;
        let mut done: Vec<(TaskId, Served)> = Vec::new();
        let mut reasons: Vec<(Place, WaitReason)> = Vec::new();
        let mut waits = Waits::default();
        for (ahead, (place_of, waiting)) in reign.queue.iter().enumerate() {
            let need = &waiting.ask.need;
            let quiet = waiting.told.is_some() && ahead >= self.config.told_max;
            // Told at once, but only to a new request: for one that waits there was a node.
            let is_new = waiting.told.is_none() && waiting.ask.key.is_none();
            let is_plain = waiting.ask.refused.is_empty() && waiting.ask.barred.is_empty();
            if quiet && (exhausted && need.gpus > 0 || is_plain && waits.know(need)) {
                continue;
            }
            let ahead = u32::try_from(ahead - done.len()).unwrap_or(u32::MAX);
            if is_plain
                && !is_new
                && let Some(reason) = waits.reason(need, done.len(), ahead)
            {
                reasons.push((*place_of, reason));
                continue;
            }
            let untried = Untried::new(&waiting.ask, &fleet.alive, &self.lost);
            match untried.place(&waiting.ask, &blocked) {
                Placement::Fits { node, incarnation, gpus } => {
                    for (gpu, _) in &gpus {
                        held.hold(node, gpu);
                        blocked.hold(node, gpu);
                    }
                    let TaskId { job, attempt } = waiting.ask.task;
                    let (term, home, key) = (reign.term, waiting.home, place_of.0);
                    let ttl_ms =
                        u32::try_from(self.config.grant_ttl.as_millis()).unwrap_or(u32::MAX);
                    let grant =
                        Grant { term, job, attempt, home, node, incarnation, gpus, key, ttl_ms };
                    done.push((waiting.ask.task, Served::Grant(waiting.home, grant)));
                }
                Placement::Busy { .. } => {
                    if is_new && let Err(best) = feasible(need, fleet.known()) {
                        done.push((waiting.ask.task, Served::Infeasible(waiting.home, best)));
                        continue;
                    }
                    let left = fleet.known().filter(|report| !is_barred(&waiting.ask, report));
                    if !waiting.ask.barred.is_empty() && feasible(need, left).is_err() {
                        done.push((waiting.ask.task, Served::Barred(waiting.home)));
                        continue;
                    }
                    let reason = untried.why(&waiting.ask, &held, ahead);
                    // Not where it was refused: it cannot use what is free there.
                    block(need, untried.fleet(), &mut blocked);
                    exhausted = exhausted || !any_left(&fleet.alive, &blocked);
                    if is_plain {
                        waits.note(need, done.len(), reason.clone());
                    }
                    reasons.push((*place_of, reason));
                }
            }
        }
        self.answer(done, fleet, now, out);
        self.tell(reasons, now, out);
    }

    fn answer(
        &mut self,
        done: Vec<(TaskId, Served)>,
        fleet: &Fleet<'_>,
        now: Instant,
        out: &mut Outbox<Send>,
    ) {
        let Some(reign) = &mut self.reign else { return };
        for (task, served) in done {
            reign.queue.remove(task);
            match served {
                Served::Grant(home, grant) => {
                    let until = now + self.config.grant_ttl + self.config.grant_margin;
                    let grant = self.key.sign(grant);
                    let start = fleet.alive(home).map(|report| report.incarnation);
                    let granted = Granted { grant: grant.clone(), until, home: start };
                    reign.granted.insert(task, granted);
                    out.push(Send(home, Message::Granted(grant)));
                }
                Served::Barred(home) => out.push(Send(home, Message::Barred { task })),
                Served::Infeasible(home, best) => {
                    out.push(Send(home, Message::Infeasible { task, best }));
                }
            }
        }
    }

    /// Tells the first in the queue why they wait, when that has changed, and not too often.
    fn tell(&mut self, reasons: Vec<(Place, WaitReason)>, now: Instant, out: &mut Outbox<Send>) {
        let Some(reign) = &mut self.reign else { return };
        for (rank, (place, reason)) in reasons.into_iter().enumerate() {
            let Some(home) = reign.queue.find(place.1).map(|waiting| waiting.home) else {
                continue;
            };
            let Some(told) = reign.queue.told(place) else { continue };
            match told {
                Some((before, _)) if *before == reason => continue,
                Some(_) if rank >= self.config.told_max => continue,
                Some((_, at)) if now.since(*at) < self.config.tell_every => {
                    reign.tell_at = earliest([reign.tell_at, Some(*at + self.config.tell_every)]);
                    continue;
                }
                _ => *told = Some((reason.clone(), now)),
            }
            out.push(Send(home, Message::Queued { task: place.1, key: place.0, reason }));
        }
    }

    /// No two grants under way share a GPU.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let mut seen = BTreeSet::new();
            for granted in self.reign.iter().flat_map(|reign| reign.granted.values()) {
                let grant = granted.grant.value();
                for (gpu, _) in &grant.gpus {
                    debug_assert!(seen.insert((grant.node, gpu)), "{gpu} is granted twice");
                }
            }
        }
    }
}

/// How a request leaves the queue.
enum Served {
    Barred(NodeId),
    Grant(NodeId, Grant),
    Infeasible(NodeId, super::request::Best),
}

/// The reign under which a message for the controller makes sense, for whoever answers
/// [`Message::NotController`].
pub fn misdirected(follows: Option<Reign>, message: &Message) -> Option<Message> {
    let task = match message {
        Message::Ask(ask) => Some(ask.task),
        Message::Present { .. } | Message::Withdraw { .. } => None,
        _ => return None,
    };
    Some(Message::NotController { follows, task })
}

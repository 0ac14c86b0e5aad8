//! Decides to whom this node stays linked, and over whom a message travels that has no link.
//!
//! A small mesh is fully linked: everything is one hop. In a large one ids are a ring, and each
//! node keeps links to its successor and to the members that follow half the ring away, a quarter,
//! an eighth and so on (the fingers of Chord, Stoica et al. 2001): few links, connected, no
//! agreement needed, and one that comes or goes changes the fingers of few others. Beyond those it
//! links whom it is asked to: the controller, standbys, the peers of its tasks.
//!
//! A message for a peer without a link is parked while the peer is dialled. If the dial fails, a
//! control message travels over another member; a datagram of SWIM is lost, as its protocol
//! expects.
//!
//! Members that are gone are not forgotten: one of them, at random, is dialled every few seconds,
//! so that two halves of a split mesh find each other again at a cost that does not grow with it.
//!
//! A link that nobody needs is closed only when it is old, and not without a word: the other end
//! may still want it, and one that is lost without a word makes a suspect.
//!
//! In: who exists and where (the directory), what is to be sent, what became of dials. Out: dials
//! and messages. Always true: a peer is dialled again only after a wait that grows; nobody is
//! banned; what is parked is bounded for each peer and in all; what is kept of a member that is
//! neither linked nor wanted nor gone is nothing.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;

use super::control;
use super::directory::{Directory, Entry};
use super::id::NodeId;
use super::message::Message;
use super::outbox::Outbox;
use super::time::{Duration, Instant, earliest};

/// Up to so many other members the mesh is fully linked.
pub const FULL_MAX: usize = 64;

/// Waits between dials of one peer: the first, and the longest.
const DIAL_FIRST: Duration = Duration::from_millis(300);
const DIAL_LONGEST: Duration = Duration::from_secs(30);

/// How often a member that is gone is dialled, on average.
const GONE_EVERY: Duration = Duration::from_secs(5);

/// How long a wish for a link lasts.
const WISH_FOR: Duration = Duration::from_secs(60);

/// How old a link is before it is closed because nobody needs it here: longer than a wish of the
/// other end, that would open it again.
const LINK_LASTS: Duration = Duration::from_secs(2 * 60);

/// Messages parked for one peer, and peers for which any are: beyond them the oldest are dropped,
/// and nothing is parked for more peers.
const PARKED_MAX: usize = 64;
const PARKED_PEERS_MAX: usize = 256;

/// What neighbours are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The deadline has come.
    Deadline,
    /// A dial failed.
    DialFailed(NodeId),
    /// A member that was gone is not remembered any more.
    Forgotten(NodeId),
    /// A peer was found, or is remembered, that listens there.
    Known(NodeId, Vec<String>),
    /// A member is alive, or listens elsewhere: the directory has it.
    Alive(NodeId),
    /// A link was opened.
    Linked(NodeId),
    /// A member is dead or gone.
    Gone(NodeId),
    /// A message for a member.
    Send(NodeId, Message),
    /// A link is gone.
    Unlinked(NodeId),
    /// A link to this member is wanted for a while, now.
    Wish(NodeId),
}

/// What neighbours want done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Dial a member.
    Dial(NodeId, Vec<String>),
    /// Dial an address that the user gave.
    DialAddress(String),
    /// Close a link that nobody needs any more.
    Hangup(NodeId),
    /// Send a control message over a linked peer (the first) to a member (the second).
    Relay(NodeId, NodeId, control::Message),
    /// Send this over the link.
    Send(NodeId, Message),
}

/// Whom this node is linked with, and whom it should be.
#[derive(Debug)]
pub struct Neighbours {
    me: NodeId,
    rng: ChaCha12Rng,
    /// Addresses of peers that the directory has no report of.
    strangers: BTreeMap<NodeId, Vec<String>>,
    /// Members that are dead or have left, as far as is known.
    gone: BTreeSet<NodeId>,
    /// The members to be linked with, and the turn of the directory for which that holds.
    fingers: Vec<NodeId>,
    fingers_at: Option<u64>,
    circle_changed: bool,
    /// Who is wished for, and until when.
    wished: BTreeMap<NodeId, Instant>,
    tries: BTreeMap<NodeId, Try>,
    links: BTreeSet<NodeId>,
    /// Since when each link is open.
    linked_at: BTreeMap<NodeId, Instant>,
    parked: BTreeMap<NodeId, VecDeque<Message>>,
    /// Another peer relays each time.
    turn: usize,
    /// Addresses that the user gave, tried while there is no link at all.
    bootstrap: Vec<String>,
    bootstrap_try: Try,
    /// When a member that is gone is dialled next.
    gone_at: Instant,
    deadline: Option<Instant>,
}

/// When something is tried again.
#[derive(Debug, Default)]
struct Try {
    count: u32,
    at: Instant,
}

impl Neighbours {
    /// A node without links; `bootstrap` are addresses to try while there is no link, `remembered`
    /// are members of before.
    pub fn new(
        me: NodeId,
        bootstrap: Vec<String>,
        remembered: Vec<(NodeId, Vec<String>)>,
        rng: ChaCha12Rng,
    ) -> Self {
        let mut strangers: BTreeMap<NodeId, Vec<String>> = remembered.into_iter().collect();
        strangers.remove(&me);
        Self {
            me,
            rng,
            gone: strangers.keys().copied().collect(),
            strangers,
            fingers: Vec::new(),
            fingers_at: None,
            circle_changed: false,
            wished: BTreeMap::new(),
            tries: BTreeMap::new(),
            links: BTreeSet::new(),
            linked_at: BTreeMap::new(),
            parked: BTreeMap::new(),
            turn: 0,
            deadline: (!bootstrap.is_empty()).then_some(Instant::ZERO),
            bootstrap,
            bootstrap_try: Try::default(),
            gone_at: Instant::ZERO,
        }
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How many messages wait for a link.
    pub fn parked(&self) -> usize {
        self.parked.values().map(VecDeque::len).sum()
    }

    /// The linked peers.
    pub fn links(&self) -> &BTreeSet<NodeId> {
        &self.links
    }

    /// Those with whom this node keeps in touch, its links and those that it should have; if they
    /// are others than when it was last asked.
    pub fn new_circle(&mut self) -> Option<Vec<NodeId>> {
        std::mem::take(&mut self.circle_changed).then(|| {
            let missing = self.fingers.iter().filter(|node| !self.links.contains(node));
            self.links.iter().chain(missing).copied().collect()
        })
    }

    /// Handles one input.
    pub fn handle(
        &mut self,
        input: Input,
        directory: &Directory,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        match input {
            Input::Alive(node) => {
                self.gone.remove(&node);
                self.strangers.remove(&node);
                // Most members are nothing to this node, whatever they have to say.
                if self.fingers_at == Some(directory.turns()) && !self.wants(node, now) {
                    return;
                }
            }
            Input::Deadline => {}
            Input::DialFailed(node) => {
                self.relay_parked(node, out);
                return;
            }
            Input::Send(node, message) => {
                if self.links.contains(&node) {
                    out.push(Effect::Send(node, message));
                    return;
                }
                self.park(node, message);
                self.wish(node, now);
            }
            Input::Known(node, addresses) if node != self.me => {
                self.gone.remove(&node);
                self.strangers.insert(node, addresses);
                self.fingers_at = None;
            }
            Input::Known(..) => return,
            Input::Forgotten(node) => {
                self.gone.remove(&node);
                self.strangers.remove(&node);
            }
            Input::Linked(node) => {
                self.circle_changed |= self.links.insert(node);
                self.linked_at.insert(node, now);
                self.tries.remove(&node);
                self.bootstrap_try = Try::default();
                for message in self.parked.remove(&node).into_iter().flatten() {
                    out.push(Effect::Send(node, message));
                }
            }
            Input::Gone(node) => {
                self.parked.remove(&node);
                self.tries.remove(&node);
                self.wished.remove(&node);
                let known = self.strangers.contains_key(&node) || directory.get(node).is_some();
                if known && self.gone.insert(node) {
                    self.fingers_at = None;
                    self.gone_at = self.gone_at.max(self.next_gone(now));
                }
            }
            Input::Unlinked(node) => {
                self.circle_changed |= self.links.remove(&node);
                self.linked_at.remove(&node);
            }
            Input::Wish(node) => self.wish(node, now),
        }
        self.dial(directory, now, out);
    }

    /// Somebody waits for a link: it is dialled now, unless that has failed before.
    fn wish(&mut self, node: NodeId, now: Instant) {
        if node != self.me {
            self.wished.insert(node, now + WISH_FOR);
        }
    }

    fn park(&mut self, node: NodeId, message: Message) {
        if self.parked.len() >= PARKED_PEERS_MAX && !self.parked.contains_key(&node) {
            return;
        }
        let parked = self.parked.entry(node).or_default();
        if parked.len() >= PARKED_MAX {
            parked.pop_front();
        }
        parked.push_back(message);
    }

    fn relay_parked(&mut self, to: NodeId, out: &mut Outbox<Effect>) {
        let over: Vec<NodeId> = self.links.iter().copied().filter(|peer| *peer != to).collect();
        for message in self.parked.remove(&to).into_iter().flatten() {
            if let (Message::Control(message), false) = (message, over.is_empty()) {
                out.push(Effect::Relay(over[self.turn % over.len()], to, message));
            }
        }
        self.turn = self.turn.wrapping_add(1);
    }

    fn dial(&mut self, directory: &Directory, now: Instant, out: &mut Outbox<Effect>) {
        self.deadline = None;
        if self.links.is_empty() && !self.bootstrap.is_empty() {
            if self.bootstrap_try.at <= now {
                for address in &self.bootstrap {
                    out.push(Effect::DialAddress(address.clone()));
                }
                self.bootstrap_try.again(now, &mut self.rng);
            }
            self.deadline = Some(self.bootstrap_try.at);
        }
        self.dial_gone(directory, now, out);
        let wanted = self.wanted(directory, now);
        if directory.living() > FULL_MAX + 1 {
            self.hang_up(&wanted, now, out);
        }
        for node in wanted {
            if self.links.contains(&node) {
                continue;
            }
            let addresses = self.addresses(node, directory);
            if addresses.is_empty() {
                continue;
            }
            let tries = self.tries.entry(node).or_default();
            if tries.at <= now {
                out.push(Effect::Dial(node, addresses));
                tries.again(now, &mut self.rng);
            }
            self.deadline = earliest([self.deadline, Some(tries.at)]);
        }
    }

    /// Both ends want a finger; the end that does not know it leaves it to the other.
    fn hang_up(&self, wanted: &BTreeSet<NodeId>, now: Instant, out: &mut Outbox<Effect>) {
        let surplus = self.links.len().saturating_sub(FULL_MAX);
        let unwanted = self.links.iter().filter(|link| !wanted.contains(link));
        let old = |link: &&NodeId| {
            self.linked_at.get(link).is_none_or(|since| now.since(*since) >= LINK_LASTS)
        };
        unwanted.filter(old).take(surplus).for_each(|link| out.push(Effect::Hangup(*link)));
    }

    /// Where a peer listens, as it says itself and as others do.
    fn addresses(&self, node: NodeId, directory: &Directory) -> Vec<String> {
        let told = directory.get(node).map(|entry| entry.report().addresses.as_slice());
        let mut addresses = told.unwrap_or_default().to_vec();
        let found = self.strangers.get(&node).into_iter().flatten();
        let others: Vec<String> = found.filter(|at| !addresses.contains(at)).cloned().collect();
        addresses.extend(others);
        addresses
    }

    /// One that is gone may be back, and may not know where to find this node.
    fn dial_gone(&mut self, directory: &Directory, now: Instant, out: &mut Outbox<Effect>) {
        let may = |node: &&NodeId| {
            !self.links.contains(*node) && !self.addresses(**node, directory).is_empty()
        };
        if !self.gone.iter().any(|node| may(&node)) {
            return;
        }
        if self.gone_at <= now {
            let there: Vec<NodeId> = self.gone.iter().filter(may).copied().collect();
            let chosen = there[self.rng.random_range(0..there.len())];
            out.push(Effect::Dial(chosen, self.addresses(chosen, directory)));
            self.gone_at = self.next_gone(now);
        }
        self.deadline = earliest([self.deadline, Some(self.gone_at)]);
    }

    fn next_gone(&mut self, now: Instant) -> Instant {
        now + GONE_EVERY.mul_f64(self.rng.random_range(0.5..1.5))
    }

    /// Whether a node should be linked with.
    pub fn wants(&self, node: NodeId, now: Instant) -> bool {
        self.fingers.contains(&node) || self.wished.get(&node).is_some_and(|until| *until > now)
    }

    /// Whom this node should be linked with.
    fn wanted(&mut self, directory: &Directory, now: Instant) -> BTreeSet<NodeId> {
        if self.fingers_at != Some(directory.turns()) {
            let fingers = self.choose(directory);
            self.circle_changed |= fingers != self.fingers;
            self.fingers = fingers;
            self.fingers_at = Some(directory.turns());
        }
        self.wished.retain(|_, until| *until > now);
        let wanted: BTreeSet<NodeId> = self.wished.keys().chain(&self.fingers).copied().collect();
        self.tries.retain(|node, tries| tries.at > now || wanted.contains(node));
        wanted
    }

    /// Everybody in a small mesh, else the fingers.
    fn choose(&self, directory: &Directory) -> Vec<NodeId> {
        let is_alive = |node| directory.get(node).is_some_and(Entry::is_alive);
        let strangers: BTreeSet<NodeId> = self
            .strangers
            .keys()
            .copied()
            .filter(|node| !self.gone.contains(node) && !is_alive(*node))
            .collect();
        if directory.living() + strangers.len() <= FULL_MAX + 1 {
            let members = directory.alive().map(|report| report.node);
            return members.chain(strangers).filter(|node| *node != self.me).collect();
        }
        let next = |after: NodeId| {
            let behind = (Bound::Excluded(after), Bound::Unbounded);
            let stranger = strangers.range(behind).next().or_else(|| strangers.first()).copied();
            let found = [directory.next_alive(after), stranger].into_iter().flatten();
            // The nearer of the two, once around.
            found.min_by_key(|node| (*node <= after, *node))
        };
        let mut fingers = BTreeSet::new();
        let nearest = next(self.me);
        for halvings in 0..=u8::MAX {
            let finger = next(self.me.plus(halvings));
            fingers.extend(finger.filter(|node| *node != self.me));
            if finger == nearest {
                break;
            }
        }
        fingers.extend(nearest.filter(|node| *node != self.me));
        fingers.into_iter().collect()
    }
}

impl Try {
    /// Sets the next try: the wait doubles, and varies so that nodes do not fall into step.
    fn again(&mut self, now: Instant, rng: &mut ChaCha12Rng) {
        let wait = DIAL_FIRST.saturating_mul(1 << self.count.min(10)).min(DIAL_LONGEST);
        self.at = now + wait.mul_f64(rng.random_range(0.75..1.25));
        self.count = self.count.saturating_add(1);
    }
}

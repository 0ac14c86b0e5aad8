//! Decides to whom this node stays linked, and over whom a message travels that has no link.
//!
//! A small mesh is fully linked: everything is one hop. In a large one each node keeps links to the
//! members that follow it in the order of ids at distances 1, 2, 4, 8 and so on (the fingers of
//! Chord, Stoica et al. 2001): few links, connected, and no agreement needed. Beyond those it links
//! whom it is asked to: the controller, standbys, the peers of its tasks.
//!
//! A message for a peer without a link is parked while the peer is dialled. If the dial fails, a
//! control message travels over another member; a datagram of SWIM is lost, as its protocol
//! expects.
//!
//! Members that are gone are not forgotten: one of them, at random, is dialled every few seconds,
//! so that two halves of a split mesh find each other again at a cost that does not grow with it.
//!
//! In: who exists and where, what is to be sent, what became of dials. Out: dials and messages.
//! Always true: a peer is dialled again only after a wait that grows; nobody is banned; what is
//! parked is bounded for each peer and in all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;

use super::control;
use super::id::NodeId;
use super::message::Message;
use super::outbox::Outbox;
use super::time::{Duration, Instant, earliest};

/// Up to so many other members the mesh is fully linked.
const FULL_MAX: usize = 64;

/// Waits between dials of one peer: the first, and the longest.
const DIAL_FIRST: Duration = Duration::from_millis(300);
const DIAL_LONGEST: Duration = Duration::from_secs(30);

/// How often a member that is gone is dialled, on average.
const GONE_EVERY: Duration = Duration::from_secs(5);

/// How long a wish for a link lasts.
const WISH_FOR: Duration = Duration::from_secs(60);

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
    /// A member is alive and listens there.
    Known(NodeId, Vec<String>),
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
    peers: BTreeMap<NodeId, Peer>,
    links: BTreeSet<NodeId>,
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

#[derive(Debug, Default)]
struct Peer {
    addresses: Vec<String>,
    wished_until: Option<Instant>,
    tries: Try,
    /// It is dead or has left, as far as is known.
    gone: bool,
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
        let gone = |addresses| Peer { addresses, gone: true, ..Peer::default() };
        let peers = remembered.into_iter().map(|(node, addresses)| (node, gone(addresses)));
        Self {
            me,
            rng,
            peers: peers.filter(|(node, _)| *node != me).collect(),
            links: BTreeSet::new(),
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

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Instant, out: &mut Outbox<Effect>) {
        match input {
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
                let peer = self.peers.entry(node).or_default();
                peer.addresses = addresses;
                peer.gone = false;
            }
            Input::Known(..) => return,
            Input::Forgotten(node) => _ = self.peers.remove(&node),
            Input::Linked(node) => {
                self.links.insert(node);
                self.peers.entry(node).or_default().tries = Try::default();
                self.bootstrap_try = Try::default();
                for message in self.parked.remove(&node).into_iter().flatten() {
                    out.push(Effect::Send(node, message));
                }
            }
            Input::Gone(node) => {
                self.parked.remove(&node);
                if let Some(peer) = self.peers.get_mut(&node) {
                    *peer = Peer {
                        addresses: std::mem::take(&mut peer.addresses),
                        gone: true,
                        ..Peer::default()
                    };
                    self.gone_at = self.gone_at.max(self.next_gone(now));
                }
            }
            Input::Unlinked(node) => {
                self.links.remove(&node);
            }
            Input::Wish(node) => self.wish(node, now),
        }
        self.dial(now, out);
    }

    /// Somebody waits for a link: it is dialled now, unless that has failed before.
    fn wish(&mut self, node: NodeId, now: Instant) {
        if node != self.me {
            let peer = self.peers.entry(node).or_default();
            peer.wished_until = Some(now + WISH_FOR);
            if peer.tries.count == 0 {
                peer.tries.at = now;
            }
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

    fn dial(&mut self, now: Instant, out: &mut Outbox<Effect>) {
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
        self.dial_gone(now, out);
        let wanted = self.wanted(now);
        if self.members() > FULL_MAX {
            // Both ends want a finger; the end that does not know it leaves it to the other.
            let surplus = self.links.len().saturating_sub(FULL_MAX);
            let unwanted = self.links.iter().filter(|link| !wanted.contains(link));
            unwanted.take(surplus).for_each(|link| out.push(Effect::Hangup(*link)));
        }
        for node in wanted {
            let Some(peer) = self.peers.get_mut(&node) else { continue };
            if self.links.contains(&node) || peer.addresses.is_empty() {
                continue;
            }
            if peer.tries.at <= now {
                out.push(Effect::Dial(node, peer.addresses.clone()));
                peer.tries.again(now, &mut self.rng);
            }
            self.deadline = earliest([self.deadline, Some(peer.tries.at)]);
        }
    }

    /// One that is gone may be back, and may not know where to find this node.
    fn dial_gone(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        let gone = |(node, peer): &(&NodeId, &Peer)| {
            peer.gone && !peer.addresses.is_empty() && !self.links.contains(*node)
        };
        let count = self.peers.iter().filter(gone).count();
        if count == 0 {
            return;
        }
        if self.gone_at <= now {
            let chosen = self.rng.random_range(0..count);
            if let Some((node, peer)) = self.peers.iter().filter(gone).nth(chosen) {
                out.push(Effect::Dial(*node, peer.addresses.clone()));
            }
            self.gone_at = self.next_gone(now);
        }
        self.deadline = earliest([self.deadline, Some(self.gone_at)]);
    }

    fn next_gone(&mut self, now: Instant) -> Instant {
        now + GONE_EVERY.mul_f64(self.rng.random_range(0.5..1.5))
    }

    /// How many others there are.
    fn members(&self) -> usize {
        self.peers.values().filter(|peer| !peer.gone).count()
    }

    /// Whom this node should be linked with.
    fn wanted(&self, now: Instant) -> BTreeSet<NodeId> {
        let alive = self.peers.iter().filter(|(_, peer)| !peer.gone);
        let ring: Vec<NodeId> = alive.map(|(node, _)| *node).collect();
        let wished = self.peers.iter().filter(|(_, peer)| peer.wished_until > Some(now));
        let mut wanted: BTreeSet<NodeId> = wished.map(|(node, _)| *node).collect();
        if ring.len() <= FULL_MAX {
            wanted.extend(ring);
            return wanted;
        }
        let start = ring.partition_point(|node| *node < self.me);
        let fingers = std::iter::successors(Some(1), |step| Some(step * 2))
            .take_while(|step| *step <= ring.len())
            .map(|step| ring[(start + step - 1) % ring.len()]);
        wanted.extend(fingers);
        wanted
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    const T0: Instant = Instant::from_nanos(1_000);

    fn id(number: u16) -> NodeId {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        NodeId(bytes)
    }

    fn neighbours(me: u16, bootstrap: &[&str]) -> Neighbours {
        let bootstrap = bootstrap.iter().map(|address| (*address).to_owned()).collect();
        Neighbours::new(id(me), bootstrap, Vec::new(), ChaCha12Rng::seed_from_u64(1))
    }

    fn handle(neighbours: &mut Neighbours, input: Input, now: Instant) -> Vec<Effect> {
        let mut out = Outbox::new();
        neighbours.handle(input, now, &mut out);
        out.drain().collect()
    }

    #[test]
    fn a_known_member_is_dialled_and_again_only_after_growing_waits() {
        let mut neighbours = neighbours(0, &[]);
        let known = Input::Known(id(1), vec!["a".into()]);
        assert_eq!(handle(&mut neighbours, known.clone(), T0).len(), 1);
        assert!(handle(&mut neighbours, known, T0).is_empty());
        let mut waits = Vec::new();
        let mut now = T0;
        for _ in 0..12 {
            let next = neighbours.deadline().unwrap();
            waits.push(next - now);
            now = next;
            assert_eq!(handle(&mut neighbours, Input::Deadline, now).len(), 1);
        }
        assert!(waits[0] < Duration::from_millis(400) && waits[11] <= Duration::from_secs(38));
        handle(&mut neighbours, Input::Linked(id(1)), now);
        assert_eq!(neighbours.deadline(), None);
    }

    #[test]
    fn the_users_addresses_are_tried_while_there_is_no_link() {
        let mut neighbours = neighbours(0, &["x"]);
        let dial = [Effect::DialAddress("x".into())];
        assert_eq!(handle(&mut neighbours, Input::Deadline, T0), dial);
        handle(&mut neighbours, Input::Linked(id(1)), T0);
        assert_eq!(neighbours.deadline(), None);
        assert_eq!(handle(&mut neighbours, Input::Unlinked(id(1)), T0), dial);
    }

    #[test]
    fn one_of_those_that_are_gone_is_dialled_every_few_seconds_until_it_is_back() {
        let mut neighbours = neighbours(0, &[]);
        for other in 1..40 {
            let known = Input::Known(id(other), vec![format!("a{other}")]);
            handle(&mut neighbours, known, T0);
            handle(&mut neighbours, Input::Linked(id(other)), T0);
            handle(&mut neighbours, Input::Unlinked(id(other)), T0);
            handle(&mut neighbours, Input::Gone(id(other)), T0);
        }
        let mut now = T0;
        let mut dialled = BTreeSet::new();
        for _ in 0..400 {
            let next = neighbours.deadline().unwrap();
            assert!(next > now && next - now <= GONE_EVERY.mul_f64(1.5));
            now = next;
            let effects = handle(&mut neighbours, Input::Deadline, now);
            let [Effect::Dial(node, addresses)] = &effects[..] else { panic!("{effects:?}") };
            assert_eq!(addresses.len(), 1);
            dialled.insert(*node);
        }
        assert_eq!(dialled.len(), 39);
        for other in 1..39 {
            handle(&mut neighbours, Input::Forgotten(id(other)), now);
        }
        handle(&mut neighbours, Input::Linked(id(39)), now);
        assert_eq!(neighbours.deadline(), None);
    }

    #[test]
    fn members_of_before_are_dialled_although_there_are_links() {
        let remembered = vec![(id(1), vec!["a".into()]), (id(0), vec!["me".into()])];
        let mut neighbours =
            Neighbours::new(id(0), Vec::new(), remembered, ChaCha12Rng::seed_from_u64(1));
        handle(&mut neighbours, Input::Linked(id(2)), T0);
        let at = T0 + GONE_EVERY.mul_f64(1.5);
        let dial = [Effect::Dial(id(1), vec!["a".into()])];
        assert_eq!(handle(&mut neighbours, Input::Deadline, at), dial);
    }

    #[test]
    fn a_wish_for_one_that_is_gone_dials_it_at_once() {
        let mut neighbours = neighbours(0, &[]);
        handle(&mut neighbours, Input::Known(id(1), vec!["a".into()]), T0);
        handle(&mut neighbours, Input::Gone(id(1)), T0);
        let dial = [Effect::Dial(id(1), vec!["a".into()])];
        assert_eq!(handle(&mut neighbours, Input::Wish(id(1)), T0), dial);
    }

    #[test]
    fn a_large_mesh_is_connected_by_few_links() {
        const SIZE: u16 = 500;
        let mut reached = BTreeSet::from([id(0)]);
        let mut queue = vec![0];
        while let Some(me) = queue.pop() {
            let mut neighbours = neighbours(me, &[]);
            for other in (0..SIZE).filter(|other| *other != me) {
                neighbours.peers.entry(id(other)).or_default().addresses = vec!["a".into()];
            }
            let wanted = neighbours.wanted(T0);
            assert!(wanted.len() <= 9, "{}", wanted.len());
            for other in (0..SIZE).filter(|other| wanted.contains(&id(*other))) {
                if reached.insert(id(other)) {
                    queue.push(other);
                }
            }
        }
        assert_eq!(reached.len(), usize::from(SIZE));
    }

    #[test]
    fn a_message_waits_for_the_link_and_travels_around_if_there_is_none() {
        let ask = || control::Message::Full {
            task: crate::core::task::TaskId {
                job: crate::core::id::JobId::from_bits(1),
                attempt: crate::core::id::Attempt(1),
            },
        };
        let mut neighbours = neighbours(0, &[]);
        handle(&mut neighbours, Input::Known(id(1), vec!["a".into()]), T0);
        let send = || Input::Send(id(1), Message::Control(ask()));
        assert!(handle(&mut neighbours, send(), T0).is_empty());
        let sent = handle(&mut neighbours, Input::Linked(id(1)), T0);
        assert_eq!(sent, [Effect::Send(id(1), Message::Control(ask()))]);
        handle(&mut neighbours, Input::Linked(id(2)), T0);
        handle(&mut neighbours, Input::Unlinked(id(1)), T0);
        for _ in 0..3 * PARKED_MAX {
            handle(&mut neighbours, send(), T0);
        }
        let relayed = handle(&mut neighbours, Input::DialFailed(id(1)), T0);
        assert_eq!(relayed.len(), PARKED_MAX);
        assert_eq!(relayed[0], Effect::Relay(id(2), id(1), ask()));
    }
}

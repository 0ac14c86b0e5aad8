//! The machine of [`super`].

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, Message, Why};
use crate::core::id::{NodeId, Reign, Term};
use crate::core::outbox::Outbox;
use crate::core::signed::{Key, Signed};
use crate::core::time::{Duration, Instant, earliest};

/// How an election behaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// For how long a node that has just started only listens, unless it has heard all before.
    pub listen: Duration,
    /// How many in rank are standbys.
    pub standbys: usize,
    /// Time between two pings of a standby.
    pub ping_every: Duration,
    /// How long the controller may answer nothing before it is suspected.
    pub silence: Duration,
    /// How long a lost link may take to be opened again before the controller is suspected.
    pub redial: Duration,
    /// How long a suspicion that is not repeated counts. More than twice `ping_every`.
    pub suspicion: Duration,
    /// The claim of each rank comes this much later than that of the rank before.
    pub rank_delay: Duration,
    /// How much longer a single standby waits, for nobody can confirm what it sees.
    pub single_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Duration::from_secs(3),
            standbys: 3,
            ping_every: Duration::from_millis(250),
            silence: Duration::from_millis(900),
            redial: Duration::from_millis(250),
            suspicion: Duration::from_millis(1_200),
            rank_delay: Duration::from_millis(200),
            single_delay: Duration::from_millis(500),
        }
    }
}

/// What the election is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// How many that could reign are placed before this node, the controller before left out: the
    /// answer to [`Effect::CountAhead`].
    Ahead(usize),
    /// The first of those that could reign, the best placed first, and behind them this node if it
    /// could and is not among them.
    Candidates {
        /// Who.
        first: Vec<NodeId>,
        /// Whether these are all.
        complete: bool,
    },
    /// Compare reigns with this peer: a claim may never have arrived.
    Compare(NodeId),
    /// The deadline has come.
    Deadline,
    /// A dial that was wished for failed.
    DialFailed(NodeId),
    /// A member is dead.
    Down(NodeId),
    /// A claim that came by gossip.
    Heard(Signed<Claim>),
    /// A member says that it leaves.
    Left(NodeId),
    /// A link was opened.
    Linked(NodeId),
    /// A whole directory was pulled: this node has heard all there is to hear.
    Pulled,
    /// A message of a linked peer.
    Received(NodeId, Message),
    /// A term is on disk.
    TermStored(Term),
    /// A link is gone.
    Unlinked(NodeId),
}

/// What the election wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell all linked peers, and gossip it.
    Broadcast(Signed<Claim>),
    /// Open a link to this node, if there is none.
    Connect(NodeId),
    /// How many are placed before this node? [`Input::Ahead`] answers. Asked only when it matters,
    /// for in a large mesh somebody has to count.
    CountAhead,
    /// Another reign is followed from now on.
    Followed(Reign),
    /// Send this.
    Send(NodeId, Message),
    /// Keep this term; [`Input::TermStored`] answers.
    StoreTerm(Term),
}

/// Who reigns, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    me: NodeId,
    key: Key,
    config: Config,
    /// The claim that is followed.
    followed: Option<Signed<Claim>>,
    /// Why its controller is given up, if it is.
    lost: Option<Why>,
    /// The highest term heard of or stored.
    term: Term,
    /// The claim that will be made when its term is stored.
    pending: Option<(Term, Why)>,
    candidates: Vec<NodeId>,
    /// Whether there are no others.
    complete: bool,
    links: BTreeSet<NodeId>,
    /// Until when this node only listens.
    listen_until: Option<Instant>,
    claim_at: Option<Instant>,
    watch: Watch,
    /// Standbys that suspect the followed reign, and until when that counts.
    suspicions: BTreeMap<NodeId, Instant>,
}

/// A standby's watch over the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watch {
    ping_at: Option<Instant>,
    seq: u64,
    /// When the controller was last heard.
    heard: Option<Instant>,
    /// When a link that is missing makes it a suspect.
    missing_at: Option<Instant>,
    suspects: bool,
}

impl Election {
    /// An election at the start of a node; `term` is the highest on its disk.
    pub fn new(key: Key, term: Term, config: Config, now: Instant) -> Self {
        let listen_until = Some(now + config.listen);
        Self {
            me: key.id(),
            key,
            config,
            followed: None,
            lost: None,
            term,
            pending: None,
            candidates: Vec::new(),
            complete: true,
            links: BTreeSet::new(),
            listen_until,
            claim_at: None,
            watch: Watch::default(),
            suspicions: BTreeMap::new(),
        }
    }

    /// The reign that is followed.
    pub fn reign(&self) -> Option<Reign> {
        self.followed.as_ref().map(reign_of)
    }

    /// The claim that is followed: its term, and why it was made.
    pub fn claim(&self) -> Option<&Signed<Claim>> {
        self.followed.as_ref()
    }

    /// Whether this node is the controller.
    pub fn is_controller(&self) -> bool {
        self.reign().is_some_and(|reign| reign.controller == self.me)
    }

    /// Whether the followed controller is thought to be gone.
    pub fn is_vacant(&self) -> bool {
        self.followed.is_none() || self.lost.is_some()
    }

    /// Which node this is.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The highest term heard of or stored.
    pub fn term(&self) -> Term {
        self.term
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let watch = [self.watch.ping_at, self.watch.missing_at];
        earliest([self.listen_until, self.claim_at].into_iter().chain(watch))
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Instant, out: &mut Outbox<Effect>) {
        match input {
            Input::Ahead(count) => {
                if self.is_vacant() && self.claim_at.is_none() {
                    self.claim_at = Some(now + self.claim_delay(count));
                }
            }
            Input::Candidates { first, complete } => {
                self.candidates = first;
                self.complete = complete;
            }
            Input::Compare(peer) => {
                // Whichever of the two follows the lower reign is taught by the other.
                let ping = Message::Ping { seq: self.watch.seq, follows: self.reign() };
                out.push(Effect::Send(peer, ping));
            }
            Input::Deadline => self.on_deadline(now),
            Input::DialFailed(node) => self.on_dial_failed(node, now),
            Input::Down(node) => self.on_down(node),
            Input::Heard(claim) => self.on_claim(None, claim, out),
            Input::Left(node) => self.on_left(node),
            Input::Linked(node) => self.on_linked(node, now, out),
            Input::Pulled => self.listen_until = None,
            Input::Received(from, message) => self.on_message(from, message, now, out),
            Input::TermStored(term) => self.on_term_stored(term, out),
            Input::Unlinked(node) => self.on_unlinked(node, now, out),
        }
        self.keep_watch(now, out);
        self.count_suspicions(now);
        self.consider_claim(now, out);
    }

    fn on_deadline(&mut self, now: Instant) {
        if self.listen_until.is_some_and(|until| until <= now) {
            self.listen_until = None;
        }
        if self.watch.missing_at.is_some_and(|at| at <= now) {
            self.watch.missing_at = None;
            self.watch.suspects = true;
        }
    }

    fn on_dial_failed(&mut self, node: NodeId, now: Instant) {
        // Nobody answers where the controller was: that is all a standby needs to know.
        if self.reigns(node) && self.watch.missing_at.is_some() {
            self.watch.missing_at = Some(now);
            self.on_deadline(now);
        }
    }

    fn on_down(&mut self, node: NodeId) {
        self.links.remove(&node);
        if self.reigns(node) && self.lost.is_none() {
            self.lost = Some(Why::Dead { before: node });
        }
    }

    fn on_left(&mut self, node: NodeId) {
        if self.reigns(node) && node != self.me {
            self.lost = Some(Why::Left { before: node });
        }
    }

    fn on_linked(&mut self, node: NodeId, now: Instant, out: &mut Outbox<Effect>) {
        self.links.insert(node);
        if let Some(claim) = &self.followed {
            out.push(Effect::Send(node, Message::Claim(claim.clone())));
        }
        if self.reigns(node) {
            self.watch = Watch { seq: self.watch.seq, heard: Some(now), ..Watch::default() };
        }
    }

    fn on_unlinked(&mut self, node: NodeId, now: Instant, out: &mut Outbox<Effect>) {
        self.links.remove(&node);
        if self.reigns(node) && self.is_standby() {
            out.push(Effect::Connect(node));
            self.watch.missing_at = Some(now + self.config.redial);
        }
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        match message {
            Message::Claim(claim) => self.on_claim(Some(from), claim, out),
            Message::Ping { seq, follows } => {
                out.push(Effect::Send(from, Message::Pong { seq, follows: self.reign() }));
                self.teach(from, follows, out);
            }
            Message::Pong { follows, .. } => {
                // One that was restarted answers too, but does not know that it reigns.
                if self.reigns(from) && follows >= self.reign() {
                    self.watch.heard = Some(now);
                    self.watch.suspects = false;
                    self.watch.missing_at = None;
                    self.suspicions.remove(&self.me);
                }
                self.teach(from, follows, out);
            }
            Message::Suspect { reign } => {
                let known = self.suspicions.contains_key(&from);
                let room = known || self.suspicions.len() <= 2 * self.config.standbys;
                if self.reign() == Some(reign) && self.standbys().contains(&from) && room {
                    self.suspicions.insert(from, now + self.config.suspicion);
                }
            }
        }
    }

    /// Tells a peer that follows a lower reign, or none, of the one followed here.
    fn teach(&self, peer: NodeId, follows: Option<Reign>, out: &mut Outbox<Effect>) {
        if let Some(claim) = &self.followed
            && follows.is_none_or(|theirs| theirs < reign_of(claim))
        {
            out.push(Effect::Send(peer, Message::Claim(claim.clone())));
        }
    }

    fn on_claim(&mut self, from: Option<NodeId>, claim: Signed<Claim>, out: &mut Outbox<Effect>) {
        let reign = reign_of(&claim);
        if let Some(ours) = &self.followed {
            if reign < reign_of(ours) {
                if let Some(from) = from {
                    out.push(Effect::Send(from, Message::Claim(ours.clone())));
                }
                return;
            }
            if reign == reign_of(ours) {
                return;
            }
        }
        // A reign of this node before its restart. It follows no ghost of itself; but whoever does
        // would follow nothing lower, so that it has to claim anew.
        if reign.controller == self.me {
            self.term = self.term.max(reign.term);
            self.lost.get_or_insert(Why::Restarted);
            return;
        }
        self.follow(claim, out);
    }

    fn follow(&mut self, claim: Signed<Claim>, out: &mut Outbox<Effect>) {
        let reign = reign_of(&claim);
        if reign.term > self.term {
            self.term = reign.term;
            out.push(Effect::StoreTerm(reign.term));
        }
        self.followed = Some(claim);
        self.lost = None;
        self.pending = None;
        self.claim_at = None;
        self.suspicions.clear();
        self.watch = Watch { seq: self.watch.seq, ..Watch::default() };
        out.push(Effect::Followed(reign));
    }

    /// A standby pings, and says whom it cannot reach.
    fn keep_watch(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        let Some(reign) = self.reign().filter(|_| self.is_standby() && self.lost.is_none()) else {
            self.watch.ping_at = None;
            self.watch.missing_at = None;
            return;
        };
        if self.watch.ping_at.is_some_and(|at| at > now) {
            return;
        }
        self.watch.ping_at = Some(now + self.config.ping_every);
        if self.links.contains(&reign.controller) {
            self.watch.seq += 1;
            let ping = Message::Ping { seq: self.watch.seq, follows: Some(reign) };
            out.push(Effect::Send(reign.controller, ping));
            let heard = *self.watch.heard.get_or_insert(now);
            self.watch.suspects |= now.since(heard) >= self.config.silence;
        } else if self.watch.missing_at.is_none() && !self.watch.suspects {
            out.push(Effect::Connect(reign.controller));
            self.watch.missing_at = Some(now + self.config.redial);
        }
        if self.watch.suspects {
            self.suspicions.insert(self.me, now + self.config.suspicion);
            for standby in self.standbys().into_iter().filter(|standby| *standby != self.me) {
                out.push(Effect::Send(standby, Message::Suspect { reign }));
            }
        }
    }

    /// Gives the controller up when most standbys suspect it.
    fn count_suspicions(&mut self, now: Instant) {
        self.suspicions.retain(|_, until| *until > now);
        let Some(reign) = self.reign().filter(|_| self.lost.is_none() && self.is_standby()) else {
            return;
        };
        if self.watch.suspects {
            self.suspicions.insert(self.me, now + self.config.suspicion);
        }
        let standbys = self.standbys();
        let count = standbys.iter().filter(|node| self.suspicions.contains_key(node)).count();
        if self.watch.suspects && count * 2 > standbys.len() {
            let standbys = u32::try_from(count).unwrap_or(u32::MAX);
            self.lost = Some(Why::Unreachable { before: reign.controller, standbys });
        }
    }

    /// Claims when there is no living controller and nobody better placed has.
    fn consider_claim(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        let could = self.candidates.contains(&self.me);
        if !self.is_vacant() || self.listen_until.is_some() || !could || self.pending.is_some() {
            if !self.is_vacant() {
                self.claim_at = None;
            }
            return;
        }
        match self.claim_at {
            None => {
                let Some(ahead) = self.ahead() else {
                    out.push(Effect::CountAhead);
                    return;
                };
                let delay = self.claim_delay(ahead);
                self.claim_at = Some(now + delay);
                if delay > Duration::ZERO {
                    return;
                }
            }
            Some(at) if at > now => return,
            Some(_) => {}
        }
        self.claim_at = None;
        let term = self.term.next();
        let why = match &self.lost {
            Some(why) => why.clone(),
            None if self.complete && self.candidates.len() == 1 => Why::Alone,
            None => Why::NoController,
        };
        self.term = term;
        self.pending = Some((term, why));
        out.push(Effect::StoreTerm(term));
    }

    /// How many are placed before this node, the controller before left out. `None`: there are more
    /// than are known here.
    fn ahead(&self) -> Option<usize> {
        let before = self.followed.as_ref().map(Signed::signer);
        let mut others = self.candidates.iter().filter(|node| Some(**node) != before);
        let place = others.position(|node| *node == self.me);
        let last = self.candidates.last() == Some(&self.me);
        if last && !self.complete { None } else { Some(place.unwrap_or(self.candidates.len())) }
    }

    /// How long to leave the claim to those who are better placed.
    fn claim_delay(&self, ahead: usize) -> Duration {
        let delay = self.config.rank_delay * u32::try_from(ahead).unwrap_or(u32::MAX);
        let alone = matches!(self.lost, Some(Why::Unreachable { standbys: 1, .. }));
        if alone { delay + self.config.single_delay } else { delay }
    }

    fn on_term_stored(&mut self, term: Term, out: &mut Outbox<Effect>) {
        // A higher claim, or word of the controller, may have come while the disk was busy.
        let Some((_, why)) = self.pending.take_if(|(pending, _)| *pending == term) else { return };
        if !self.is_vacant() {
            return;
        }
        let claim = self.key.sign(Claim { term, why });
        self.follow(claim.clone(), out);
        out.push(Effect::Broadcast(claim));
    }

    fn reigns(&self, node: NodeId) -> bool {
        self.reign().is_some_and(|reign| reign.controller == node)
    }

    /// The first in rank after the controller.
    fn standbys(&self) -> Vec<NodeId> {
        let controller = self.reign().map(|reign| reign.controller);
        let others = self.candidates.iter().copied().filter(|node| Some(*node) != controller);
        others.take(self.config.standbys).collect()
    }

    fn is_standby(&self) -> bool {
        !self.is_controller() && self.standbys().contains(&self.me)
    }
}

/// The reign that a claim begins.
fn reign_of(claim: &Signed<Claim>) -> Reign {
    Reign { term: claim.value().term, controller: claim.signer() }
}

//! Decides who is alive, by SWIM.
//!
//! SWIM (Das, Gupta, Motivala 2002) with suspicion. Each member probes one other a second, so the
//! load of a member does not grow with the mesh; one that answers neither directly nor over others
//! is first suspected, and can refute. What becomes of a member travels as a rumour, on datagrams
//! that are sent anyway and on a few more while there is news. A lost connection is a hint, never a
//! verdict. Rumours alone can miss members, so repair feeds membership too.
//!
//! Unlike the paper's, a member probes not anybody but its circle: those with whom it is linked
//! anyway, or should be. In a small mesh that is everybody. In a large one a probe then needs no
//! new connection, and a member is watched by those who have it in their circles, so that it is
//! still probed about once a second; the circles (fingers on a ring) spread rumours as fast as
//! chance does.
//!
//! A rumour is told a few times and then no more, and who slept or was cut off meanwhile may miss a
//! death. In a large mesh it would never find out: it probes only its circle. So every few seconds
//! two members compare a digest of those who live, as repair compares directories. One that finds
//! another digest than its own tells of the dead, some each time; the other dials those of them
//! that it takes for alive, and suspects whom it cannot reach.
//!
//! Each member counts its lives: a start of its daemon begins a higher one, and so does every
//! refutation, of a suspicion and of a death alike. What is said of a higher life counts; of one
//! life, death counts more than suspicion, and suspicion more than life.
//!
//! In: datagrams, met and lost peers, states learnt by repair. Out: datagrams, verdicts.
//! Always true: a member was up before it is down; this node is never in its own list; what the
//! list does not show has cost nothing to keep.

mod datagram;
mod living;
mod probe;
mod rumours;
mod suspicion;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rand::rngs::ChaCha12Rng;

use self::datagram::{Datagram, Kind, Rumour};
use self::living::Living;
use self::probe::{PROBE_EVERY, Probe};
use self::rumours::Rumours;
use self::suspicion::Suspicion;
use super::id::{Incarnation, NodeId};
use super::outbox::Outbox;
use super::roll::{Filed, Roll};
use super::time::{Duration, Instant, earliest};

/// Members that are known, dead ones included; more are not let in.
pub const MEMBERS_MAX: usize = 16_384;

/// Starts of one node are this many lives apart: a refutation begins a life within a start.
const LIVES_PER_START: u64 = 1 << 16;

/// Members that are asked for help, and that are told news at once.
const FEW: usize = 3;

/// Time between two tellings while there is news.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How long word that a link is closed on purpose is remembered.
const PARTING_FOR: Duration = Duration::from_secs(10);

/// How long a dead member is remembered.
const REMEMBER: Duration = Duration::from_hours(24);

/// What membership is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Whom to probe and to tell; everybody, as long as nobody is named.
    Circle(Vec<NodeId>),
    /// Compare with this linked peer who lives.
    Compare(NodeId),
    /// A datagram from a linked peer.
    Datagram(NodeId, Vec<u8>),
    /// The deadline has come.
    Deadline,
    /// The number of this start, which had to be raised.
    Incarnation(Incarnation),
    /// This node is about to stop: say goodbye.
    Leave,
    /// The link to a peer is gone: look after it now.
    LinkLost(NodeId),
    /// There is a link to a peer that may not know that we exist: tell it.
    Met(NodeId),
    /// This node closes the link to a peer, which shall think nothing of it.
    Parting(NodeId),
    /// A dial of this member has failed.
    Unreachable(NodeId),
    /// Repair shows a node that rumours may have missed; never a death.
    Repaired(NodeId, Incarnation),
}

/// What membership wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Another takes this member for dead: it should be dialled, unless there is a link.
    Doubt(NodeId),
    /// This member is dead, or has left.
    Down(NodeId),
    /// Send this datagram; without a link it is dropped, as SWIM expects of a network.
    Send(NodeId, Vec<u8>),
    /// This member is alive, or has started again.
    Up(NodeId),
}

/// How a member is. Of one life the later in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Alive,
    Suspect,
    Down,
}

/// What is known of a member.
#[derive(Clone, Debug)]
pub struct Member {
    node: NodeId,
    life: u64,
    state: State,
}

impl Member {
    /// One that lives, in this start of its daemon.
    pub fn alive(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, life: first_life(incarnation), state: State::Alive }
    }
}

impl Filed for Member {
    fn node(&self) -> NodeId {
        self.node
    }
}

/// The members of the mesh.
#[derive(Debug)]
pub struct Membership {
    me: NodeId,
    life: u64,
    /// This node has said goodbye and refutes nothing any more.
    left: bool,
    rng: ChaCha12Rng,
    roll: Roll<Member>,
    /// Those of them that are not dead.
    living: Living,
    circle: Vec<NodeId>,
    rumours: Rumours,
    tell_at: Option<Instant>,
    /// Whose turn in the circle it is, when the next probe is due, and the one that is under way.
    turn: usize,
    probe_at: Option<Instant>,
    probe: Option<Probe>,
    seq: u32,
    suspects: BTreeMap<NodeId, Suspicion>,
    /// Peers that close their link on purpose, and until when that is believed.
    parting: BTreeMap<NodeId, Instant>,
    /// The dead, and when they died.
    dead: BTreeMap<NodeId, Instant>,
    /// Up to whom the dead were told of last.
    told: Option<NodeId>,
    /// Members that others take for dead, and until when it matters whether they can be reached.
    doubted: BTreeMap<NodeId, Instant>,
}

impl Membership {
    /// A node that knows only itself, in this start of its daemon.
    pub fn new(me: NodeId, incarnation: Incarnation, rng: ChaCha12Rng) -> Self {
        Self {
            me,
            life: first_life(incarnation),
            left: false,
            rng,
            roll: Roll::default(),
            living: Living::new(me),
            circle: Vec::new(),
            rumours: Rumours::default(),
            tell_at: None,
            turn: 0,
            probe_at: None,
            probe: None,
            seq: 0,
            suspects: BTreeMap::new(),
            parting: BTreeMap::new(),
            dead: BTreeMap::new(),
            told: None,
            doubted: BTreeMap::new(),
        }
    }

    /// Knows from now on these members, all of them alive, as if it had met each.
    pub fn adopt(&mut self, members: Roll<Member>, now: Instant) {
        self.roll = members;
        self.roll.remove(self.me);
        self.living = Living::new(self.me);
        self.roll.iter().for_each(|member| self.living.add(member.node));
        self.keep_probing(now);
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let help = self.probe.as_ref().and_then(|probe| probe.help_at);
        let suspects = self.suspects.values().map(|suspicion| suspicion.until).min();
        earliest([self.probe_at, help, self.tell_at, suspects])
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        usize::from(self.probe_at.is_some()) + self.suspects.len() + self.parting.len()
    }

    /// The other members that are alive, suspects included.
    pub fn alive(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.roll.iter().filter(|member| member.state != State::Down).map(Filed::node)
    }

    /// Whether another member is alive as far as is known.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.roll.get(node).is_some_and(|member| member.state != State::Down)
    }

    /// Whether a link is being closed on purpose, by either end.
    pub fn parts_with(&self, node: NodeId, now: Instant) -> bool {
        self.parting.get(&node).is_some_and(|until| *until > now)
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Instant, out: &mut Outbox<Effect>) {
        match input {
            Input::Circle(circle) => self.circle = circle,
            Input::Compare(peer) => {
                self.send(peer, Kind::Living(self.living.digest()), Vec::new(), out);
            }
            Input::Datagram(from, bytes) => self.on_datagram(from, &bytes, now, out),
            Input::Deadline => self.on_deadline(now, out),
            Input::Incarnation(incarnation) => {
                if first_life(incarnation) > self.life {
                    self.life = first_life(incarnation);
                    self.spread(self.about_me(State::Alive), now);
                }
            }
            Input::Leave => {
                self.left = true;
                for node in self.others() {
                    let goodbye = vec![self.about_me(State::Down)];
                    self.send(node, Kind::Rumours, goodbye, out);
                }
            }
            Input::LinkLost(node) => self.on_link_lost(node, now),
            Input::Met(node) => {
                self.send(node, Kind::Hello, Vec::new(), out);
                self.speak_for(node, now, out);
            }
            Input::Parting(node) => {
                self.parting.insert(node, now + PARTING_FOR);
                self.send(node, Kind::Parting, Vec::new(), out);
            }
            Input::Unreachable(node) => self.on_unreachable(node, now),
            Input::Repaired(node, incarnation) => self.on_repaired(node, incarnation, now, out),
        }
        self.keep_probing(now);
    }

    fn on_datagram(&mut self, from: NodeId, bytes: &[u8], now: Instant, out: &mut Outbox<Effect>) {
        if from == self.me {
            return;
        }
        let Some(datagram) = Datagram::decode(bytes) else {
            tracing::debug!("a SWIM datagram was dropped");
            self.speak_for(from, now, out);
            return;
        };
        let life = self.life;
        let sender = Rumour { node: from, life: datagram.life, state: State::Alive };
        self.hear(sender, now, out);
        self.speak_for(from, now, out);
        let mut better = Vec::new();
        self.doubted.remove(&from);
        let verdicts = if datagram.kind == Kind::Dead { &[][..] } else { &datagram.rumours };
        for rumour in verdicts {
            self.hear(*rumour, now, out);
            // Who missed how a suspicion ended is told.
            let known = self.roll.get(rumour.node).map(rumour_of);
            let newer = known.filter(|known| rumour.state != State::Alive && known.beats(rumour));
            better.extend(newer.filter(|known| known.node != from));
        }
        if !better.is_empty() {
            self.send(from, Kind::Rumours, better, out);
        }
        match datagram.kind {
            Kind::Hello => {
                // Some of those who come after it in the order of ids: its circle.
                let some = self.roll.after(Some(from)).chain(self.roll.iter());
                let living = some.filter(|member| member.state != State::Down);
                let known: Vec<Rumour> = living.take(FEW * 4).map(rumour_of).collect();
                self.send(from, Kind::Rumours, known, out);
            }
            Kind::Ping(seq) => self.answer(from, Kind::Ack(seq), out),
            Kind::AskFor(seq, node) => self.answer(node, Kind::PingFor(seq, from), out),
            Kind::PingFor(seq, origin) => self.answer(from, Kind::AckFor(seq, origin), out),
            Kind::AckFor(seq, origin) => self.answer(origin, Kind::Vouch(seq, from), out),
            Kind::Vouch(seq, node) => {
                self.probe.take_if(|probe| probe.node == node && probe.seq == seq);
            }
            Kind::Parting => _ = self.parting.insert(from, now + PARTING_FOR),
            Kind::Living(digest) => self.tell_of_dead(digest, from, out),
            Kind::Dead => self.doubt(&datagram.rumours, now, out),
            Kind::Rumours | Kind::Ack(_) => {}
        }
        // Whoever says anything is there.
        self.probe.take_if(|probe| probe.node == from);
        let thought_dead = self.roll.get(from).filter(|member| {
            member.state == State::Down && member.life >= datagram.life && self.life == life
        });
        let goodbye = datagram.rumours.iter().any(|rumour| rumour.node == from);
        if let Some(dead) = thought_dead.map(rumour_of).filter(|_| !goodbye) {
            // It can only refute what it knows.
            self.send(from, Kind::Rumours, vec![dead], out);
        } else if self.life != life {
            self.send(from, Kind::Rumours, vec![self.about_me(State::Alive)], out);
        }
    }

    fn on_deadline(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        if let Some(late) = self.probe_at.map(|at| now.since(at)).filter(|late| *late > PROBE_EVERY)
        {
            // This node slept. What it has not heard meanwhile says nothing about others.
            self.probe = None;
            self.suspects.values_mut().for_each(|suspicion| {
                suspicion.until = suspicion.until + late;
            });
        }
        self.conclude(now, out);
        self.ask_for_help(now, out);
        if self.probe_at.take_if(|at| *at <= now).is_some() {
            self.next_probe(now, out);
        }
        if self.tell_at.take_if(|at| *at <= now).is_some() {
            for node in self.some(FEW, None) {
                self.answer(node, Kind::Rumours, out);
            }
            self.tell_at =
                (!self.rumours.is_empty() && self.living.count() > 0).then(|| now + TELL_EVERY);
        }
    }

    fn on_repaired(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        let life = first_life(incarnation);
        // One that was declared dead in the same start stays dead until it refutes that itself.
        if node != self.me && self.roll.get(node).is_none_or(|member| member.life < life) {
            self.judge(Rumour { node, life, state: State::Alive }, now, out);
        }
    }

    /// Something is said of a member; what is news is told on.
    fn hear(&mut self, rumour: Rumour, now: Instant, out: &mut Outbox<Effect>) {
        if rumour.node == self.me {
            self.hear_of_me(rumour, now);
        } else if self.judge(rumour, now, out) {
            self.spread(rumour, now);
        }
    }

    fn hear_of_me(&mut self, rumour: Rumour, now: Instant) {
        if rumour.state == State::Alive {
            self.life = self.life.max(rumour.life);
        } else if rumour.life >= self.life && !self.left {
            self.life = rumour.life.saturating_add(1);
            self.spread(self.about_me(State::Alive), now);
        }
    }

    /// Takes in what is said of a member; whether it was news.
    fn judge(&mut self, rumour: Rumour, now: Instant, out: &mut Outbox<Effect>) -> bool {
        let Rumour { node, life, state } = rumour;
        let before = self.roll.get(node).map(|member| (member.life, member.state));
        if before.is_some_and(|before| before >= (life, state)) {
            return false;
        }
        // Who was never known need not be known to be dead.
        if before.is_none() && (state == State::Down || self.roll.len() >= MEMBERS_MAX) {
            return false;
        }
        self.roll.insert(Member { node, life, state });
        let lived = before.is_some_and(|(_, state)| state != State::Down);
        let lives = state != State::Down;
        match (lived, lives) {
            (false, true) => self.living.add(node),
            (true, false) => self.living.remove(node),
            _ => {}
        }
        if state == State::Suspect {
            // Those who found out conclude first, and tell.
            let until = now + self.suspect_for() * 3 / 2;
            self.suspects.insert(node, Suspicion { until, life, certain: false });
        } else {
            self.suspects.remove(&node);
        }
        let again = before.is_some_and(|(old, _)| old / LIVES_PER_START < life / LIVES_PER_START);
        if lives {
            self.dead.remove(&node);
        }
        if lives && (!lived || again) {
            out.push(Effect::Up(node));
        } else if lived && !lives {
            self.dead.insert(node, now);
            out.push(Effect::Down(node));
        }
        true
    }

    fn spread(&mut self, rumour: Rumour, now: Instant) {
        let times = 4 * (1 + (self.living.count() + 1).ilog10());
        self.rumours.add(rumour, times);
        self.tell_at.get_or_insert(now + TELL_EVERY / 2);
    }

    /// Sends a datagram that carries rumours, as many as there is room for.
    fn answer(&mut self, to: NodeId, kind: Kind, out: &mut Outbox<Effect>) {
        let suspect = self.roll.get(to).filter(|member| member.state == State::Suspect);
        let suspect = suspect.map(rumour_of);
        let mut rumours = self.rumours.pick();
        // The suspect itself must hear of it.
        if let Some(suspect) = suspect.filter(|suspect| !rumours.contains(suspect)) {
            rumours.truncate(datagram::RUMOURS_MAX - 1);
            rumours.push(suspect);
        }
        self.send(to, kind, rumours, out);
    }

    fn send(&self, to: NodeId, kind: Kind, rumours: Vec<Rumour>, out: &mut Outbox<Effect>) {
        let datagram = Datagram { life: self.life, kind, rumours };
        out.push(Effect::Send(to, datagram.encode()));
    }

    fn about_me(&self, state: State) -> Rumour {
        Rumour { node: self.me, life: self.life, state }
    }
}

impl Rumour {
    /// Whether it counts more than another about the same member.
    fn beats(&self, other: &Self) -> bool {
        (self.life, self.state) > (other.life, other.state)
    }
}

fn rumour_of(member: &Member) -> Rumour {
    Rumour { node: member.node, life: member.life, state: member.state }
}

/// The first life of a start.
fn first_life(incarnation: Incarnation) -> u64 {
    incarnation.0.saturating_mul(LIVES_PER_START)
}

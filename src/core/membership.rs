//! Decides who is alive, by SWIM.
//!
//! SWIM (Das, Gupta, Motivala 2002) with suspicion, in the crate `foca`. Each member probes one
//! other at a time, so the load of a member does not grow with the mesh; a silent member is first
//! suspected and can refute with a higher incarnation. A lost connection is a hint that starts a
//! probe at once, never a verdict. Gossip alone can miss members (updates stop being
//! retransmitted), so repair feeds membership too.
//!
//! In: datagrams, met and lost peers, states learnt by repair. Out: datagrams, verdicts.
//! Keeps: foca's member list and its timers, hidden behind one deadline.
//! Always true: a member was up before it is down; this node is never in its own list.

mod swim;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use foca::{Foca, Member, NoCustomBroadcast, PostcardCodec, State, Timer};
use rand::rngs::ChaCha12Rng;

use self::swim::{Buffer, Identity, config};
use super::id::{Incarnation, NodeId};
use super::outbox::Outbox;
use super::time::{Duration, Instant, earliest};

/// Members that SWIM knows, dead ones included; more are not let in.
pub const MEMBERS_MAX: usize = 16_384;

/// Starts of one node are this many generations apart: a falsely declared death bumps the
/// generation within a start.
const GENERATIONS_PER_START: u64 = 1 << 16;

/// How long a node that was declared dead again and again waits before it comes back.
const REJOIN_AFTER: Duration = Duration::from_secs(1);

/// What membership is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
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
    /// Repair shows a node that SWIM may have missed; never a death.
    Repaired(NodeId, Incarnation),
}

/// What membership wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This member is dead, or has left.
    Down(NodeId),
    /// Others know a later start of this node, whatever its number: raise that of this one.
    Outbid,
    /// Send this datagram; without a link it is dropped, as SWIM expects of a network.
    Send(NodeId, Vec<u8>),
    /// This member is alive, or has started again.
    Up(NodeId),
}

/// The members of the mesh.
pub struct Membership {
    me: NodeId,
    foca: Foca<Identity, PostcardCodec, ChaCha12Rng, NoCustomBroadcast>,
    /// foca's timers, by when they are due and in the order in which they were set.
    timers: BTreeMap<(Instant, u64), Timer<Identity>>,
    timers_set: u64,
    /// Members whose link was lost: suspects that must refute until then.
    suspects: BTreeMap<NodeId, (Instant, u16)>,
    /// When this node, declared dead too often, comes back as another start.
    rejoin_at: Option<Instant>,
    /// The number of members that the settings were made for.
    sized_for: usize,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Membership {
    /// A node that knows only itself, in this start of its daemon.
    pub fn new(me: NodeId, incarnation: Incarnation, rng: ChaCha12Rng) -> Self {
        let generation = incarnation.0.saturating_mul(GENERATIONS_PER_START);
        let identity = Identity { node: me, generation };
        Self {
            me,
            foca: Foca::new(identity, config(2), rng, PostcardCodec),
            timers: BTreeMap::new(),
            timers_set: 0,
            suspects: BTreeMap::new(),
            rejoin_at: None,
            sized_for: 2,
        }
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        earliest([timer, self.rejoin_at, self.suspects.values().map(|(at, _)| *at).min()])
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        self.timers.len() + self.suspects.len()
    }

    /// The other members that are alive, suspects included.
    pub fn alive(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.foca.iter_members().map(|member| member.id().node)
    }

    /// Whether another member is alive as far as is known.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.foca.iter_members().any(|member| member.id().node == node)
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Instant, out: &mut Outbox<Effect>) {
        let mut buffer = Buffer::default();
        match input {
            // Two that have declared each other dead would tell each other so without end.
            Input::Datagram(..) if self.rejoin_at.is_some() => {}
            Input::Datagram(from, bytes) => {
                // What cannot be read, or is for another, changes nothing.
                if let Err(error) = self.foca.handle_data(&bytes, &mut buffer) {
                    tracing::debug!(%error, "a SWIM datagram was dropped");
                }
                self.speak_for(from, &mut buffer);
            }
            Input::Deadline => {
                if self.rejoin_at.take_if(|at| *at <= now).is_some() {
                    out.push(Effect::Outbid);
                }
                self.on_deadline(now, &mut buffer);
            }
            Input::Incarnation(incarnation) => self.on_incarnation(incarnation, &mut buffer),
            Input::Leave => {
                let _ = self.foca.leave_cluster(&mut buffer);
            }
            Input::LinkLost(node) => self.on_link_lost(node, now, &mut buffer),
            Input::Met(node) => {
                // An announcement reaches a peer whatever its generation.
                let _ = self.foca.announce(Identity { node, generation: 0 }, &mut buffer);
                self.speak_for(node, &mut buffer);
            }
            Input::Repaired(node, incarnation) => self.on_repaired(node, incarnation, &mut buffer),
        }
        if buffer.defunct {
            self.rejoin_at.get_or_insert(now + REJOIN_AFTER);
        }
        self.forward(buffer, now, out);
        self.resize();
    }

    fn on_deadline(&mut self, now: Instant, buffer: &mut Buffer) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let timer = entry.remove();
            if let Err(error) = self.foca.handle_timer(timer, &mut *buffer) {
                tracing::debug!(%error, "a SWIM timer found nothing to do");
            }
        }
        let due: Vec<NodeId> = self
            .suspects
            .iter()
            .filter(|(_, (until, _))| *until <= now)
            .map(|(node, _)| *node)
            .collect();
        for node in due {
            let Some((_, incarnation)) = self.suspects.remove(&node) else { continue };
            // Still under the suspicion of then: it had its time to refute.
            if let Some(member) = self.find(node).filter(|member| {
                member.state() == State::Suspect && member.incarnation() == incarnation
            }) {
                let down = Member::down(member.id().clone());
                let _ = self.foca.apply_many(std::iter::once(down), true, &mut *buffer);
            }
        }
    }

    /// Others know a later start of this node: under the old number nobody would believe it.
    fn on_incarnation(&mut self, incarnation: Incarnation, buffer: &mut Buffer) {
        let generation = incarnation.0.saturating_mul(GENERATIONS_PER_START);
        if generation > self.foca.identity().generation {
            self.rejoin_at = None;
            let identity = Identity { node: self.me, generation };
            if let Err(error) = self.foca.change_identity(identity, buffer) {
                tracing::debug!(%error, "this node has not told everybody its new generation");
            }
        }
    }

    /// A hint, not a verdict: the member becomes a suspect, everybody is told, and it can refute.
    fn on_link_lost(&mut self, node: NodeId, now: Instant, buffer: &mut Buffer) {
        let Some(member) = self.find(node).filter(|member| member.state() == State::Alive) else {
            return;
        };
        let incarnation = member.incarnation();
        self.suspects.insert(node, (now + self.suspect_for(), incarnation));
        let suspect = Member::new(member.id().clone(), incarnation, State::Suspect);
        let _ = self.foca.apply_many(std::iter::once(suspect), true, &mut *buffer);
        let _ = self.foca.gossip(buffer);
    }

    /// A member was heard of from itself. If it is suspected, this is its refutation, for it may
    /// never learn of the suspicion: a datagram is lost where there is no link.
    fn speak_for(&mut self, node: NodeId, buffer: &mut Buffer) {
        let Some(member) = self.find(node).filter(|member| member.state() == State::Suspect) else {
            return;
        };
        self.suspects.remove(&node);
        let incarnation = member.incarnation().saturating_add(1);
        let alive = Member::new(member.id().clone(), incarnation, State::Alive);
        let _ = self.foca.apply_many(std::iter::once(alive), true, buffer);
    }

    fn on_repaired(&mut self, node: NodeId, incarnation: Incarnation, buffer: &mut Buffer) {
        if node == self.me || self.foca.num_members() >= MEMBERS_MAX {
            return;
        }
        let generation = incarnation.0.saturating_mul(GENERATIONS_PER_START);
        // One that was declared dead in the same start stays dead until it refutes that itself.
        let known = self
            .foca
            .iter_membership_state()
            .any(|member| member.id().node == node && member.id().generation >= generation);
        if !known {
            let alive = Member::alive(Identity { node, generation });
            let _ = self.foca.apply_many(std::iter::once(alive), true, buffer);
        }
    }

    fn find(&self, node: NodeId) -> Option<Member<Identity>> {
        self.foca.iter_members().find(|member| member.id().node == node).cloned()
    }

    fn suspect_for(&self) -> Duration {
        config(self.sized_for).suspect_to_down_after
    }

    fn forward(&mut self, buffer: Buffer, now: Instant, out: &mut Outbox<Effect>) {
        for (timer, after) in buffer.timers {
            self.timers.insert((now + after, self.timers_set), timer);
            self.timers_set += 1;
        }
        for effect in buffer.effects {
            out.push(effect);
        }
    }

    /// SWIM's patience grows with the logarithm of the mesh.
    fn resize(&mut self) {
        let members = self.foca.num_members() + 1;
        if members > self.sized_for * 2 || members * 4 < self.sized_for {
            self.sized_for = members.max(2);
            // Only settings that may change while running are different.
            let _ = self.foca.set_config(config(self.sized_for));
        }
    }
}

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

/// What membership is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A datagram from a linked peer.
    Datagram(Vec<u8>),
    /// The deadline has come.
    Deadline,
    /// This node is about to stop: say goodbye.
    Leave,
    /// The link to a peer is gone: look after it now.
    LinkLost(NodeId),
    /// A link to a peer was opened: tell it that we exist.
    Met(NodeId),
    /// Repair shows a node that SWIM may have missed; never a death.
    Repaired(NodeId, Incarnation),
}

/// What membership wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This member is dead, or has left.
    Down(NodeId),
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
            sized_for: 2,
        }
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        earliest([timer, self.suspects.values().map(|(at, _)| *at).min()])
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
            Input::Datagram(bytes) => {
                // What cannot be read, or is for another, changes nothing.
                if let Err(error) = self.foca.handle_data(&bytes, &mut buffer) {
                    tracing::debug!(%error, "a SWIM datagram was dropped");
                }
            }
            Input::Deadline => self.on_deadline(now, &mut buffer),
            Input::Leave => {
                let _ = self.foca.leave_cluster(&mut buffer);
            }
            Input::LinkLost(node) => self.on_link_lost(node, now, &mut buffer),
            Input::Met(node) => {
                // An announcement reaches a peer whatever its generation.
                let _ = self.foca.announce(Identity { node, generation: 0 }, &mut buffer);
            }
            Input::Repaired(node, incarnation) => self.on_repaired(node, incarnation, &mut buffer),
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

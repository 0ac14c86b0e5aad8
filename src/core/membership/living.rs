//! Who lives, in a few bytes, and what is done about it when two members do not agree.

use std::ops::Bound;

use super::datagram::{Kind, RUMOURS_MAX, Rumour};
use super::{Effect, FEW, Membership, State, rumour_of};
use crate::core::id::NodeId;
use crate::core::outbox::Outbox;
use crate::core::time::{Duration, Instant};

/// How long a doubt lasts, and of how many members at most.
const DOUBT_FOR: Duration = Duration::from_secs(60);
const DOUBTED_MAX: usize = 64;

/// A set of members, of which only its size and its digest are known.
#[derive(Debug)]
pub(super) struct Living {
    count: usize,
    digest: u32,
}

impl Living {
    /// Nobody but this node, which is not counted.
    pub(super) fn new(me: NodeId) -> Self {
        Self { count: 0, digest: share(me) }
    }

    /// One that is not in it.
    pub(super) fn add(&mut self, node: NodeId) {
        self.count += 1;
        self.digest ^= share(node);
    }

    /// One that is in it.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.count -= 1;
        self.digest ^= share(node);
    }

    /// How many others.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Equal for equal sets, and hardly ever for others.
    pub(super) fn digest(&self) -> u32 {
        self.digest
    }
}

/// What a member adds to a digest.
fn share(node: NodeId) -> u32 {
    let word = node.0.first_chunk().map_or(0, |head| u64::from_be_bytes(*head));
    // Ids are public keys and look like chance; of others the upper half of a product does.
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from(mixed >> 32).unwrap_or(0)
}

impl Membership {
    /// A peer has said who lives. If that is not what is known here, it is told of some who are
    /// dead, and the next time of others: one that it takes for alive is among them, or it knows
    /// somebody whom repair will bring.
    pub(super) fn tell_of_dead(&mut self, digest: u32, peer: NodeId, out: &mut Outbox<Effect>) {
        if digest == self.living.digest() {
            return;
        }
        let from = self.told.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.dead.range((from, Bound::Unbounded)).chain(&self.dead);
        let round = rest.take(RUMOURS_MAX.min(self.dead.len()));
        let dead: Vec<NodeId> = round.map(|(node, _)| *node).filter(|node| *node != peer).collect();
        self.told = dead.last().copied().or(self.told);
        let dead = dead.into_iter().filter_map(|node| self.roll.get(node)).map(rumour_of);
        let dead: Vec<Rumour> = dead.collect();
        if !dead.is_empty() {
            self.send(peer, Kind::Dead, dead, out);
        }
    }

    /// A peer takes these for dead. That may be old, from when the mesh was split, and is no
    /// verdict but a reason to look, for some at a time: who cannot be reached becomes a suspect.
    pub(super) fn doubt(&mut self, dead: &[Rumour], now: Instant, out: &mut Outbox<Effect>) {
        if let Some(me) = dead.iter().find(|dead| dead.node == self.me) {
            self.hear_of_me(*me, now);
        }
        let lives = |dead: &&Rumour| {
            let known = self.roll.get(dead.node);
            known.is_some_and(|known| known.state == State::Alive && known.life <= dead.life)
        };
        let doubted: Vec<NodeId> = dead.iter().filter(lives).map(|dead| dead.node).collect();
        for node in doubted.into_iter().take(FEW) {
            if self.doubted.len() < DOUBTED_MAX || self.doubted.contains_key(&node) {
                self.doubted.insert(node, now + DOUBT_FOR);
                out.push(Effect::Doubt(node));
            }
        }
    }

    /// A dial of a member has failed, which means nothing if there was no doubt.
    pub(super) fn on_unreachable(&mut self, node: NodeId, now: Instant) {
        if self.doubted.remove(&node).is_some_and(|until| until > now) {
            self.on_link_lost(node, now);
        }
    }
}

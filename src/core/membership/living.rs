//! Who lives, in a few bytes, and what is done about it when two members do not agree.

use std::ops::Bound;

use super::datagram::{Kind, RUMOURS_MAX, Rumour};
use super::{Effect, Membership, rumour_of};
use crate::core::id::NodeId;
use crate::core::outbox::Outbox;

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
    // Ids are public keys and look like chance; for those of tests the upper half of a product does.
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
        let rumours: Vec<Rumour> =
            dead.into_iter().filter_map(|node| self.roll.get(node)).map(rumour_of).collect();
        if !rumours.is_empty() {
            self.send(peer, Kind::Rumours, rumours, out);
        }
    }
}

//! Keeps the latest report of every node; decides which of two reports is newer.
//!
//! Every node holds a directory; the controller decides from its own. It is a join-semilattice:
//! whatever reports arrive in whatever order and however often, the newest (incarnation, version)
//! of each node stays. So gossip, repair and direct notices can all feed it.
//!
//! It also keeps in order who could reign: not all, for nobody needs more than the first few.
//!
//! Always true: a report was signed by the node that it is about; the digest is that of the ages;
//! nothing but a change of who is alive costs more than the logarithm of the mesh.

mod rank;
mod sound;
#[cfg(test)]
mod tests;

use sha2::{Digest as _, Sha256};

use self::rank::Ranked;
pub use self::rank::{RANKED_MAX, Standing};
use self::sound::is_sound;
use super::id::{Incarnation, NodeId, Version};
use super::repair::Digest;
use super::report::Report;
use super::roll::{Filed, Roll};
use super::signed::Signed;
use super::time::{Duration, Instant};

/// Nodes that a directory holds; of more, new ones are not let in until dead ones are forgotten.
pub const NODES_MAX: usize = 16_384;

/// How long a dead node is remembered.
const REMEMBER: Duration = Duration::from_hours(24);

/// A node, and the (incarnation, version) of its report.
pub type Age = (NodeId, Incarnation, Version);

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is not what it says, or too large: dropped.
    Invalid,
    /// It was news and is kept.
    Newer,
    /// As new or newer is known: dropped.
    Known,
}

/// One node in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    report: Signed<Report>,
    /// Of the node and the report's age; digests are sums of these.
    hash: u64,
    /// Whether the node is alive; if not, since when.
    dead_since: Option<Instant>,
}

impl Filed for Entry {
    fn node(&self) -> NodeId {
        self.report.value().node
    }
}

impl Entry {
    /// What the node says of itself.
    pub fn report(&self) -> &Report {
        self.report.value()
    }

    /// The same, with its signature.
    pub fn signed(&self) -> &Signed<Report> {
        &self.report
    }

    /// Whether the node is alive as far as membership knows.
    pub fn is_alive(&self) -> bool {
        self.dead_since.is_none()
    }

    /// The node, and what decides whether another report of it is newer.
    pub fn age(&self) -> Age {
        (self.node(), self.report().incarnation, self.report().version)
    }

    /// Where it stands among those that could reign, if it could.
    fn standing(&self) -> Option<Standing> {
        self.is_alive().then(|| Standing::of(self.report())).flatten()
    }
}

/// The latest report of every node.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    nodes: Roll<Entry>,
    hash: u64,
    alive: usize,
    /// How often somebody came to life, died or was forgotten.
    turns: u64,
    ranked: Ranked,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a report. A node that is new is not alive until membership says so.
    pub fn insert(&mut self, report: Signed<Report>, now: Instant) -> Inserted {
        let value = report.value();
        let node = value.node;
        let known = self.nodes.get(node);
        // Most of what comes is known, for every report comes by several ways.
        if known.is_some_and(|entry| entry.report().age() >= value.age()) {
            return Inserted::Known;
        }
        if report.signer() != node || !is_sound(value) {
            return Inserted::Invalid;
        }
        if known.is_none() && self.nodes.len() >= NODES_MAX {
            return Inserted::Known;
        }
        let before = known.and_then(Entry::standing);
        let dead_since = known.map_or(Some(now), |entry| entry.dead_since);
        // Sums of hashes do not depend on the order in which reports came.
        self.hash = self.hash.wrapping_sub(known.map_or(0, |entry| entry.hash));
        let entry = Entry { hash: hash(node, value.age()), report, dead_since };
        self.hash = self.hash.wrapping_add(entry.hash);
        let after = entry.standing();
        self.nodes.insert(entry);
        self.rerank(before, after);
        Inserted::Newer
    }

    /// Membership says whether a node is alive.
    pub fn mark(&mut self, node: NodeId, alive: bool, now: Instant) {
        if self.nodes.get(node).is_none_or(|entry| entry.is_alive() == alive) {
            return;
        }
        let Some(entry) = self.nodes.get_mut(node) else { return };
        let before = entry.standing();
        entry.dead_since = (!alive).then_some(now);
        let after = entry.standing();
        self.alive = if alive { self.alive + 1 } else { self.alive - 1 };
        self.turns += 1;
        self.rerank(before, after);
    }

    fn rerank(&mut self, before: Option<Standing>, after: Option<Standing>) {
        if before != after {
            let all = self.nodes.iter().filter_map(Entry::standing);
            self.ranked.replace(before, after, all);
        }
    }

    /// Forgets nodes that have been dead for long, and answers which.
    pub fn forget(&mut self, now: Instant) -> Vec<NodeId> {
        if self.alive == self.nodes.len() {
            return Vec::new();
        }
        let gone: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|entry| entry.dead_since.is_some_and(|at| now.since(at) > REMEMBER))
            .map(Filed::node)
            .collect();
        for node in &gone {
            if let Some(entry) = self.nodes.remove(*node) {
                self.hash = self.hash.wrapping_sub(entry.hash);
                self.turns += 1;
            }
        }
        gone
    }

    /// One node.
    pub fn get(&self, node: NodeId) -> Option<&Entry> {
        self.nodes.get(node)
    }

    /// All nodes, by id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.nodes.iter().map(|entry| (entry.node(), entry))
    }

    /// The reports of the living nodes.
    pub fn alive(&self) -> impl Iterator<Item = &Report> {
        self.nodes.iter().filter(|entry| entry.is_alive()).map(Entry::report)
    }

    /// The next that is alive after an id, once around.
    pub fn next_alive(&self, after: NodeId) -> Option<NodeId> {
        let around = self.nodes.after(Some(after)).chain(self.nodes.iter());
        around.take(self.nodes.len()).find(|entry| entry.is_alive()).map(Filed::node)
    }

    /// How many are alive.
    pub fn living(&self) -> usize {
        self.alive
    }

    /// Another number than before if others are alive than before.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The first of those that could reign: alive and not leaving, the best placed first.
    pub fn ranked(&self) -> impl Iterator<Item = NodeId> {
        self.ranked.first()
    }

    /// How many of those that could reign are placed before a node, but for one of them.
    pub fn ahead_of(&self, node: NodeId, but: Option<NodeId>) -> Option<usize> {
        let own = self.nodes.get(node)?.standing()?;
        let others = self.nodes.iter().filter(|entry| Some(entry.node()) != but);
        Some(others.filter_map(Entry::standing).filter(|standing| *standing < own).count())
    }

    /// How many nodes it holds.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Equal digests mean equal directories.
    pub fn digest(&self) -> Digest {
        Digest { count: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX), hash: self.hash }
    }

    /// The ages of at most `limit` nodes after `after`, by id.
    pub fn ages(&self, after: Option<NodeId>, limit: usize) -> Vec<Age> {
        self.between(after, None).take(limit).map(Entry::age).collect()
    }

    /// The entries after one node, up to another.
    pub fn between(
        &self,
        after: Option<NodeId>,
        upto: Option<NodeId>,
    ) -> impl Iterator<Item = &Entry> {
        let rest = self.nodes.after(after);
        rest.take_while(move |entry| upto.is_none_or(|upto| entry.node() <= upto))
    }

    /// The digest of these.
    pub fn digest_between(&self, after: Option<NodeId>, upto: Option<NodeId>) -> Digest {
        let mut digest = Digest::default();
        self.between(after, upto).for_each(|entry| digest.add(entry));
        digest
    }
}

impl Digest {
    /// The digest with one entry more.
    pub(super) fn add(&mut self, entry: &Entry) {
        self.count = self.count.saturating_add(1);
        self.hash = self.hash.wrapping_add(entry.hash);
    }
}

fn hash(node: NodeId, (incarnation, version): (Incarnation, Version)) -> u64 {
    let digest = Sha256::new()
        .chain_update(node.0)
        .chain_update(incarnation.0.to_be_bytes())
        .chain_update(version.0.to_be_bytes())
        .finalize();
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

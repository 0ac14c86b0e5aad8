//! Keeps the latest report of every node; decides which of two reports is newer.
//!
//! Every node holds a directory; the controller decides from its own. It is a join-semilattice:
//! whatever reports arrive in whatever order and however often, the newest (incarnation, version)
//! of each node stays. So gossip, repair and direct notices can all feed it.
//!
//! Always true: a report was signed by the node that it is about; the digest is that of the ages.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use sha2::{Digest as _, Sha256};

use super::id::{GpuUuid, Incarnation, NodeId, Version};
use super::repair::Digest;
use super::report::{GPUS_MAX, Gpu, GpuHealth, LeaseView, Report, TEXT_MAX};
use super::signed::Signed;
use super::time::{Duration, Instant};

/// Nodes that a directory holds; of more, new ones are not let in until dead ones are forgotten.
pub const NODES_MAX: usize = 16_384;

/// Labels in one report, and addresses. A report beyond these limits or those of its own module is
/// a lie or a mistake, and is dropped.
const LABELS_MAX: usize = 64;
const ADDRESSES_MAX: usize = 64;

/// How long a dead node is remembered.
const REMEMBER: Duration = Duration::from_hours(24);

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
    /// Whether the node is alive; if not, since when.
    dead_since: Option<Instant>,
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
}

/// The latest report of every node.
#[derive(Debug, Default)]
pub struct Directory {
    nodes: BTreeMap<NodeId, Entry>,
    hash: u64,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a report. A node that is new is not alive until membership says so.
    pub fn insert(&mut self, report: Signed<Report>, now: Instant) -> Inserted {
        let value = report.value();
        if report.signer() != value.node || !is_sound(value) {
            return Inserted::Invalid;
        }
        let node = value.node;
        let hash = hash(node, value.age());
        let full = self.nodes.len() >= NODES_MAX;
        match self.nodes.get_mut(&node) {
            Some(entry) if entry.report().age() >= value.age() => return Inserted::Known,
            Some(entry) => {
                // Sums of hashes do not depend on the order in which reports came.
                let old = self::hash(node, entry.report().age());
                self.hash = self.hash.wrapping_sub(old);
                entry.report = report;
            }
            None if full => return Inserted::Known,
            None => {
                self.nodes.insert(node, Entry { report, dead_since: Some(now) });
            }
        }
        self.hash = self.hash.wrapping_add(hash);
        Inserted::Newer
    }

    /// Membership says whether a node is alive.
    pub fn mark(&mut self, node: NodeId, alive: bool, now: Instant) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.dead_since = match (alive, entry.dead_since) {
                (true, _) => None,
                (false, since) => since.or(Some(now)),
            };
        }
    }

    /// Forgets nodes that have been dead for long, and answers which.
    pub fn forget(&mut self, now: Instant) -> Vec<NodeId> {
        let gone: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, entry)| entry.dead_since.is_some_and(|at| now.since(at) > REMEMBER))
            .map(|(node, _)| *node)
            .collect();
        for node in &gone {
            if let Some(entry) = self.nodes.remove(node) {
                self.hash = self.hash.wrapping_sub(hash(*node, entry.report().age()));
            }
        }
        gone
    }

    /// One node.
    pub fn get(&self, node: NodeId) -> Option<&Entry> {
        self.nodes.get(&node)
    }

    /// All nodes, by id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        self.nodes.iter().map(|(node, entry)| (*node, entry))
    }

    /// The reports of the living nodes.
    pub fn alive(&self) -> impl Iterator<Item = &Report> {
        self.nodes.values().filter(|entry| entry.is_alive()).map(Entry::report)
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
    pub fn ages(&self, after: Option<NodeId>, limit: usize) -> Vec<(NodeId, Incarnation, Version)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.nodes
            .range((start, Bound::Unbounded))
            .take(limit)
            .map(|(node, entry)| (*node, entry.report().incarnation, entry.report().version))
            .collect()
    }
}

/// Whether a report keeps to the limits, and names each GPU once.
fn is_sound(report: &Report) -> bool {
    let text = |text: &str| text.len() <= TEXT_MAX;
    let lease = |lease: &LeaseView| text(&lease.name) && text(&lease.owner);
    let health = |health: &GpuHealth| match health {
        GpuHealth::Usable => true,
        GpuHealth::Broken(why) | GpuHealth::Quarantined(why) => text(why),
    };
    let gpu = |gpu: &Gpu| {
        text(&gpu.uuid.0)
            && text(&gpu.model)
            && health(&gpu.health)
            && gpu.lease.as_ref().is_none_or(lease)
    };
    let uuids: BTreeSet<&GpuUuid> = report.gpus.iter().map(|gpu| &gpu.uuid).collect();
    report.gpus.len() <= GPUS_MAX
        && uuids.len() == report.gpus.len()
        && report.labels.len() <= LABELS_MAX
        && report.addresses.len() <= ADDRESSES_MAX
        && text(&report.name)
        && text(&report.software)
        && report.gpus_note.as_deref().is_none_or(text)
        && report.addresses.iter().all(|address| text(address))
        && report.labels.iter().all(|(key, value)| text(key) && text(value))
        && report.gpus.iter().all(gpu)
        && report.gpuless_tasks.iter().all(lease)
}

fn hash(node: NodeId, (incarnation, version): (Incarnation, Version)) -> u64 {
    let digest = Sha256::new()
        .chain_update(node.0)
        .chain_update(incarnation.0.to_be_bytes())
        .chain_update(version.0.to_be_bytes())
        .finalize();
    digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

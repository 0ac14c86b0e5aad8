//! Decides which GPUs fill a need: a pure function over the reports of the living nodes.
//!
//! It packs: of the nodes that can take the task it chooses the one that keeps the fewest matching
//! GPUs free afterwards, and there the smallest GPUs that suffice, so that big needs find big
//! nodes. Ties fall to the smaller node id, so that equal directories give equal answers.
//!
//! In: a need, the reports, what is held by grants under way or blocked by earlier requests.
//! Out: a placement, or how much of what matches is free; whether there could ever be one.
//! Always true: a placed GPU was free, matching, and neither held nor blocked.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::id::{GpuUuid, Incarnation, LeaseSeq, NodeId};
use super::report::{Gpu, GpuHealth, NodeState, Report};
use super::request::{Best, Need};

/// Models named in a [`Best`].
const MODELS_MAX: usize = 16;

/// GPUs that may not be placed although their reports call them free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held(BTreeMap<NodeId, BTreeSet<GpuUuid>>);

impl Held {
    /// Holds a GPU. Twice is once.
    pub fn hold(&mut self, node: NodeId, gpu: &GpuUuid) {
        self.0.entry(node).or_default().insert(gpu.clone());
    }

    /// Whether a GPU is held.
    pub fn holds(&self, node: NodeId, gpu: &GpuUuid) -> bool {
        self.0.get(&node).is_some_and(|gpus| gpus.contains(gpu))
    }
}

/// What can be done about a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It fits here.
    Fits {
        /// The node.
        node: NodeId,
        /// Its start.
        incarnation: Incarnation,
        /// Its GPUs, with the lease numbers that the report told.
        gpus: Vec<(GpuUuid, LeaseSeq)>,
    },
    /// It does not fit now.
    Busy {
        /// Matching GPUs of the mesh that work.
        matching: u32,
        /// How many of them are free and not held.
        free: u32,
    },
}

/// Places a need on the living nodes.
pub fn place(need: &Need, fleet: &[&Report], held: &Held) -> Placement {
    let mut best: Option<(Rank, &Report, Vec<&Gpu>)> = None;
    let (mut matching, mut free) = (0, 0);
    for report in fleet {
        if need.node.is_some_and(|node| node != report.node) {
            continue;
        }
        let usable: Vec<&Gpu> = usable(need, report).collect();
        matching += usable.len();
        if report.state != NodeState::Serving {
            continue;
        }
        let mut ready: Vec<&Gpu> = usable
            .into_iter()
            .filter(|gpu| gpu.is_free() && !held.holds(report.node, &gpu.uuid))
            .collect();
        free += ready.len();
        let Some(left) = ready.len().checked_sub(need.gpus as usize) else { continue };
        ready.sort_by_key(|gpu| (gpu.memory_bytes, gpu.index));
        ready.truncate(need.gpus as usize);
        // A task without GPUs goes where the fewest such tasks are; one with GPUs where it leaves
        // the fewest GPUs over.
        let crowd = if need.gpus == 0 { report.gpuless_tasks.len() } else { left };
        let memory = ready.iter().map(|gpu| gpu.memory_bytes).sum();
        let rank = Rank { crowd, memory, node: report.node };
        if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
            best = Some((rank, report, ready));
        }
    }
    match best {
        Some((_, report, gpus)) => Placement::Fits {
            node: report.node,
            incarnation: report.incarnation,
            gpus: gpus.into_iter().map(|gpu| (gpu.uuid.clone(), gpu.seq)).collect(),
        },
        None => Placement::Busy { matching: count(matching), free: count(free) },
    }
}

/// Whether some node could fill a need if all its GPUs were free and in order: one that is broken
/// may be mended, a node that is away may come back.
///
/// # Errors
/// The nearest that exists, if none could ever.
pub fn feasible<'a>(
    need: &Need,
    known: impl Iterator<Item = &'a Report> + Clone,
) -> Result<(), Best> {
    let fits = |report: &Report| {
        need.node.is_none_or(|node| node == report.node)
            && matching(need, report).count() >= need.gpus as usize
    };
    if known.clone().any(fits) { Ok(()) } else { Err(nearest(need, known)) }
}

/// Where a placement stands among others: smaller is better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    crowd: usize,
    memory: u64,
    node: NodeId,
}

/// Blocks every GPU that a waiting need could ever use, so that none behind it takes what it waits
/// for: a later request passes an earlier one only on GPUs that are of no use to the earlier.
pub fn block(need: &Need, fleet: &[&Report], held: &mut Held) {
    for report in fleet {
        if need.node.is_some_and(|node| node != report.node) {
            continue;
        }
        if usable(need, report).count() >= need.gpus as usize {
            usable(need, report).for_each(|gpu| held.hold(report.node, &gpu.uuid));
        }
    }
}

/// The GPUs of a node that would do for a need if they were free.
fn usable<'a>(need: &'a Need, report: &'a Report) -> impl Iterator<Item = &'a Gpu> {
    matching(need, report).filter(|gpu| gpu.health == GpuHealth::Usable)
}

/// The GPUs of a node that are what a need wants.
fn matching<'a>(need: &'a Need, report: &'a Report) -> impl Iterator<Item = &'a Gpu> {
    report.gpus.iter().filter(move |gpu| is_wanted(need, gpu))
}

/// Whether a GPU is of the kind that a need wants.
fn is_wanted(need: &Need, gpu: &Gpu) -> bool {
    need.memory_bytes.is_none_or(|least| gpu.memory_bytes >= least)
        && need.model.as_deref().is_none_or(|model| matches_model(model, &gpu.model))
}

/// Whether a model's name contains what was asked for. Case does not matter, nor do separators:
/// `rtx-4090`, `RTX_4090` and `rtx4090` all match `NVIDIA GeForce RTX 4090`.
pub fn matches_model(asked: &str, model: &str) -> bool {
    let starts = |(at, _)| begins_with(&model[at..], asked);
    plain(asked).next().is_none() || model.char_indices().any(starts)
}

/// Whether a text begins with another, apart from case and separators. Called for every GPU of the
/// mesh with every request: it makes no copies.
fn begins_with(text: &str, beginning: &str) -> bool {
    let mut text = plain(text);
    plain(beginning).all(|wanted| text.next() == Some(wanted))
}

/// What counts of a model's name.
fn plain(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

/// The nearest that exists to a need that nothing fills.
fn nearest<'a>(need: &Need, known: impl Iterator<Item = &'a Report>) -> Best {
    let mut best = Best::default();
    let mut models = BTreeSet::new();
    for report in known {
        let fitting = count(matching(need, report).count());
        if fitting > best.gpus {
            best.gpus = fitting;
            best.node = Some(report.name.clone());
        }
        best.gpus_any = best.gpus_any.max(count(report.gpus.len()));
        for gpu in &report.gpus {
            best.memory_bytes_max = best.memory_bytes_max.max(gpu.memory_bytes);
            models.insert(gpu.model.clone());
        }
    }
    best.models = models.into_iter().take(MODELS_MAX).collect();
    best
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

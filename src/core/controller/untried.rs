//! Decides what is left to try for a request after refusals.
//!
//! A refusal tells what a report does not show yet. A node that said no for a reason of its own is
//! left out while it is in the same start; a GPU that it called taken or unusable is left out while
//! the report still has the lease number of the refused grant. The home forgets refusals after a
//! while, so that nothing is left out for ever, but for nodes that have refused for good: those are
//! left out until they are restarted. What a home claims narrows its own choice only.

use std::collections::BTreeSet;

use crate::core::control::Ask;
use crate::core::grant::Refusal;
use crate::core::id::{GpuUuid, NodeId};
use crate::core::placement::{Held, Placement, place};
use crate::core::report::Report;
use crate::core::request::WaitReason;

/// Whether a node, in its present start, has refused a request for good.
pub(super) fn is_barred(ask: &Ask, report: &Report) -> bool {
    ask.barred.contains(&(report.node, report.incarnation))
}

/// What one request may still be given.
pub(super) struct Untried<'a> {
    fleet: &'a [&'a Report],
    /// The rest of the fleet, if some node is left out.
    narrowed: Option<Vec<&'a Report>>,
    /// GPUs of the rest that are left out.
    gpus: BTreeSet<(NodeId, &'a GpuUuid)>,
}

impl<'a> Untried<'a> {
    /// What the refusals of a request leave of the fleet, without nodes that this one has lost.
    pub(super) fn new(ask: &'a Ask, fleet: &'a [&'a Report], lost: &BTreeSet<NodeId>) -> Self {
        let is_there = |node: &&NodeId| fleet.iter().any(|report| report.node == **node);
        let mut nodes: BTreeSet<NodeId> = lost.iter().filter(is_there).copied().collect();
        let mut gpus = BTreeSet::new();
        for (grant, refusal) in &ask.refused {
            let same_start = |report: &&&Report| {
                report.node == grant.node && report.incarnation == grant.incarnation
            };
            let Some(report) = fleet.iter().find(same_start) else { continue };
            match refusal {
                Refusal::CannotStart { elsewhere: true, .. }
                | Refusal::MayNotSubmit
                | Refusal::NoDirectory
                | Refusal::NotServing
                | Refusal::TooManyTasks { .. } => {
                    nodes.insert(grant.node);
                }
                Refusal::Taken { gpu }
                | Refusal::UnknownGpu { gpu }
                | Refusal::Unusable { gpu, .. } => {
                    let shown = report.gpu(gpu).map(|shown| shown.seq);
                    if grant.gpus.iter().any(|(uuid, seq)| uuid == gpu && shown == Some(*seq)) {
                        gpus.insert((grant.node, gpu));
                    }
                }
                _ => {}
            }
        }
        nodes.extend(fleet.iter().filter(|report| is_barred(ask, report)).map(|it| it.node));
        let rest = || fleet.iter().copied().filter(|report| !nodes.contains(&report.node));
        let narrowed = (!nodes.is_empty()).then(|| rest().collect());
        Self { fleet, narrowed, gpus }
    }

    /// The nodes that are left.
    pub(super) fn fleet(&self) -> &[&'a Report] {
        self.narrowed.as_deref().unwrap_or(self.fleet)
    }

    /// Why the request waits: nothing is free, or something is but others come first.
    pub(super) fn why(&self, ask: &Ask, held: &Held, ahead: u32) -> WaitReason {
        match self.place(ask, held) {
            Placement::Busy { matching, free } => WaitReason::Busy { matching, free, ahead },
            Placement::Fits { .. } => WaitReason::Behind { ahead },
        }
    }

    /// Places the request on what is left.
    pub(super) fn place(&self, ask: &Ask, held: &Held) -> Placement {
        if self.gpus.is_empty() {
            return place(&ask.need, self.fleet(), held);
        }
        let mut held = held.clone();
        for (node, gpu) in &self.gpus {
            held.hold(*node, gpu);
        }
        place(&ask.need, self.fleet(), &held)
    }
}

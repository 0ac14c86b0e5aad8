//! What a controller sees of the mesh.

use crate::core::grant::Grant;
use crate::core::id::NodeId;
use crate::core::placement::Held;
use crate::core::report::Report;
use crate::core::task::TaskId;

/// The latest reports that a controller decides on.
#[derive(Clone, Debug, Default)]
pub struct Fleet<'a> {
    /// Of nodes that are alive.
    pub alive: Vec<&'a Report>,
    /// Of members that are alive and may not run tasks: homes, and nothing else.
    pub guests: Vec<&'a Report>,
    /// Of nodes that are not, and have not left: they may come back.
    pub absent: Vec<&'a Report>,
}

impl<'a> Fleet<'a> {
    /// The report of a member that is alive.
    pub(super) fn alive(&self, node: NodeId) -> Option<&'a Report> {
        self.alive.iter().chain(&self.guests).find(|report| report.node == node).copied()
    }

    /// All of them.
    pub(super) fn known(&self) -> impl Iterator<Item = &'a Report> + Clone {
        self.alive.iter().chain(&self.absent).copied()
    }
}

/// Whether any GPU could still be placed.
pub(super) fn any_left(fleet: &[&Report], blocked: &Held) -> bool {
    fleet.iter().any(|report| {
        let gpus = &report.gpus;
        gpus.iter().any(|gpu| gpu.is_free() && !blocked.holds(report.node, &gpu.uuid))
    })
}

/// Whether a report shows that a grant was used or is worth nothing any more.
pub(super) fn is_settled(task: TaskId, grant: &Grant, report: &Report) -> bool {
    if report.incarnation != grant.incarnation {
        return true;
    }
    if grant.gpus.is_empty() {
        return report
            .gpuless_tasks
            .iter()
            .any(|lease| lease.job == task.job && lease.attempt == task.attempt);
    }
    grant.gpus.iter().any(|(gpu, seq)| report.gpu(gpu).is_none_or(|gpu| gpu.seq > *seq))
}

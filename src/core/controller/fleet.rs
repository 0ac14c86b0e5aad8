//! What a controller sees of the mesh.

use crate::core::id::NodeId;
use crate::core::report::Report;

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

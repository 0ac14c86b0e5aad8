//! Keeps what members may do, as far as this node has been shown.
//!
//! A membership is proven outside of the core, on a link or beside a message that was relayed; that
//! it was is a fact that comes in. Who was never met is not restricted here: whoever acts on what
//! it says meets it first, for a home is linked with the node that it sends a task to, and a node
//! with the home that it runs one for.
//!
//! Always true: at most [`MET_MAX`] members are kept.

use std::collections::BTreeMap;

use super::id::NodeId;

/// Members whose rights are kept; of more, new ones are not restricted here.
const MET_MAX: usize = super::directory::NODES_MAX;

/// What a member may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Offer GPUs, and run the tasks of others.
    pub node: bool,
    /// Submit jobs.
    pub submit: bool,
}

impl Rights {
    /// All of them.
    pub const ALL: Self = Self { node: true, submit: true };
}

/// The rights of the members that this node has met.
#[derive(Clone, Debug, Default)]
pub struct Met(BTreeMap<NodeId, Rights>);

impl Met {
    /// A member has proven what it may do. Whether that is news.
    pub fn meet(&mut self, node: NodeId, rights: Rights) -> bool {
        if self.0.len() >= MET_MAX && !self.0.contains_key(&node) {
            return false;
        }
        self.0.insert(node, rights) != Some(rights)
    }

    /// Forgets a member.
    pub fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Whether a member may run tasks, as far as is known.
    pub fn may_serve(&self, node: NodeId) -> bool {
        self.0.get(&node).is_none_or(|rights| rights.node)
    }

    /// Whether a member may submit jobs, as far as is known.
    pub fn may_submit(&self, node: NodeId) -> bool {
        self.0.get(&node).is_none_or(|rights| rights.submit)
    }
}

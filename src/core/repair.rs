//! Decides what to exchange so that two directories become equal (anti-entropy).

use serde::{Deserialize, Serialize};

use super::id::{Incarnation, NodeId, Version};
use super::report::Report;
use super::signed::Signed;

/// Reports in one [`Message::Reports`], and entries in one [`Message::Summary`] page.
pub const PAGE: usize = 64;

/// A directory in sixteen bytes: equal digests mean equal directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many reports.
    pub count: u32,
    /// Order-independent hash of (node, incarnation, version) of each.
    pub hash: u64,
}

/// What travels between two repairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// This is my directory's digest; if yours differs, send a summary.
    Digest(Digest),
    /// These reports are newer than yours, or you asked for them.
    Reports(Vec<Signed<Report>>),
    /// These are the ages of what I have, between two node ids (inclusive; `None`: no bound).
    Summary {
        /// First node id that the page covers.
        from: Option<NodeId>,
        /// Last node id that the page covers.
        to: Option<NodeId>,
        /// What lies between.
        ages: Vec<(NodeId, Incarnation, Version)>,
    },
    /// Send me the reports of these, at most [`PAGE`].
    Want(Vec<NodeId>),
}

//! Task streams between a home and a node: the daemon's `home` and `host`, without the bytes.

use gpuvine::core::grant::{Grant, Refusal};
use gpuvine::core::signed::Signed;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::WallTime;

use super::network::LinkId;

/// Names one stream; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(pub(crate) u64);

/// What a stream carries: as `wire::task`, without input and output.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    // To the node.
    Open(Signed<Grant>),
    Attach,
    Stop { now: bool },
    Acknowledge,
    // To the home.
    Accepted,
    Attached,
    Refused(Refusal),
    Unknown,
    Ended(Outcome, WallTime),
    // To either.
    Closed,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) task: TaskId,
    pub(crate) home: usize,
    pub(crate) node: usize,
    /// The connection that it is on; none if home and node are one.
    pub(crate) link: Option<LinkId>,
    /// The ends that have not closed it.
    pub(crate) home_open: bool,
    pub(crate) node_open: bool,
    /// The node sends the task's end on it: it has been accepted or attached.
    pub(crate) follows: bool,
    /// A stop that came while the task was being started.
    pub(crate) stop: Option<bool>,
}

/// What a new stream is for.
#[derive(Clone, Debug)]
pub(crate) enum First {
    Attach,
    Open(Signed<Grant>),
}

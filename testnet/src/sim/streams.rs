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
    /// Which of that machine's homes.
    pub(crate) of: u64,
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

impl Stream {
    /// A stream that has just been opened.
    pub(crate) fn new(
        task: TaskId,
        home: usize,
        of: u64,
        node: usize,
        link: Option<LinkId>,
    ) -> Self {
        let (home_open, node_open, follows, stop) = (true, true, false, None);
        Self { task, home, of, node, link, home_open, node_open, follows, stop }
    }
}

/// What a new stream is for.
#[derive(Clone, Debug)]
pub(crate) enum First {
    Attach,
    Open(Signed<Grant>),
}

impl First {
    /// Whether a stream for a task has to take the place of one about another, or of one about the
    /// same task: as `daemon::home::Order::replaces`.
    pub(crate) fn replaces(&self, task: TaskId, current: TaskId) -> bool {
        match self {
            Self::Open(_) => task >= current,
            Self::Attach => task > current,
        }
    }
}

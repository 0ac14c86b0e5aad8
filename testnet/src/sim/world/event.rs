//! What may happen in the world.

use gpuvine::core::id::{JobId, NodeId};
use gpuvine::core::ledger::LeaseRecord;
use gpuvine::core::message::Gossip;
use gpuvine::core::request::Need;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::Instant;

use super::Undo;
use crate::sim::machine::Temper;
use crate::sim::network::{Cargo, LinkId};
use crate::sim::streams::{Frame, StreamId};

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Something arrives on a link.
    Arrive {
        link: LinkId,
        to: usize,
        cargo: Cargo,
    },
    /// The faults are over.
    Calm,
    /// A commit begins, and is done.
    Commit {
        machine: usize,
        life: u32,
    },
    Written {
        machine: usize,
        life: u32,
    },
    /// Nobody answered a dial.
    DialFailed {
        machine: usize,
        life: u32,
        peer: usize,
    },
    /// A dial reaches its target.
    Dialled {
        from: usize,
        life: u32,
        to: usize,
    },
    /// Gossip arrives.
    Gossip {
        to: usize,
        life: u32,
        gossip: Gossip,
    },
    /// A keeper tells its daemon.
    Keeper {
        machine: usize,
        life: u32,
        task: TaskId,
        news: News,
    },
    /// A link is open, or gone, at this end.
    Linked {
        link: LinkId,
        at: usize,
    },
    LinkGone {
        link: LinkId,
        at: usize,
        peer: usize,
    },
    /// Whether a link is still stuck.
    LinkCheck {
        link: LinkId,
        since: Instant,
    },
    /// A frame of a stream within one machine.
    Local {
        machine: usize,
        life: u32,
        stream: StreamId,
        frame: Frame,
        to_home: bool,
    },
    /// A stream has been opened, perhaps.
    Opened {
        machine: usize,
        life: u32,
        number: u64,
    },
    /// An outcome's acknowledgement has been waited for long enough.
    Patience {
        machine: usize,
        life: u32,
        stream: StreamId,
    },
    /// A task's processes go on.
    Process {
        machine: usize,
        boot: u32,
        task: TaskId,
        step: Step,
    },
    /// A keeper has been told to start a task.
    Spawn {
        machine: usize,
        life: u32,
        boot: u32,
        spawn: Box<Spawn>,
    },
    /// A stream has waited long enough for its link.
    StreamWait {
        machine: usize,
        life: u32,
        number: u64,
    },
    /// The next fault strikes.
    Strike,
    /// The node's timer.
    Timer {
        machine: usize,
        life: u32,
        at: Instant,
    },
    /// A fault is over.
    Undo(Undo),
    /// A user does something.
    User(User),
}

impl Event {
    /// Where an event happens, and in which start of the daemon there; `None`: whichever runs.
    pub(super) fn place(&self) -> Option<(usize, Option<u32>)> {
        match self {
            Self::Arrive { to, .. } => Some((*to, None)),
            Self::Linked { at, .. } | Self::LinkGone { at, .. } => Some((*at, None)),
            Self::DialFailed { machine, life, .. }
            | Self::Keeper { machine, life, .. }
            | Self::Local { machine, life, .. }
            | Self::Opened { machine, life, .. }
            | Self::Patience { machine, life, .. }
            | Self::StreamWait { machine, life, .. }
            | Self::Timer { machine, life, .. }
            | Self::Commit { machine, life }
            | Self::Written { machine, life } => Some((*machine, Some(*life))),
            Self::Gossip { to, life, .. } => Some((*to, Some(*life))),
            Self::User(User::Submit { machine, .. } | User::Cancel { machine, .. }) => {
                Some((*machine, None))
            }
            Self::Process { .. }
            | Self::Spawn { .. }
            | Self::Dialled { .. }
            | Self::LinkCheck { .. }
            | Self::Calm
            | Self::Strike
            | Self::Undo(_) => None,
        }
    }
}

/// What a keeper is told to start.
#[derive(Clone, Debug)]
pub(crate) struct Spawn {
    pub(crate) lease: LeaseRecord,
    pub(crate) fails: bool,
    /// Whether it starts although its daemon dies meanwhile.
    pub(crate) orphaned: bool,
}

/// What a keeper says.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Started { home: NodeId },
    Failed,
    CommandEnded,
    Stuck,
    Gone(Outcome),
}

/// What a task's processes do next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The command ends like this.
    End(Outcome),
    /// SIGKILL for all of them.
    Kill,
    /// None is left.
    Gone,
}

/// What a user does.
#[derive(Clone, Debug)]
pub(crate) enum User {
    Submit { machine: usize, job: JobId, need: Need, temper: Temper, name: String },
    Cancel { machine: usize, job: JobId, now: bool },
}

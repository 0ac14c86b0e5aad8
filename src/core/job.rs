//! Decides a job's life at its home node.
//!
//! A job is asked for until it is granted, offered to the node until that has answered, and
//! followed until it has ended. The one thing that must never happen is a second living attempt:
//! after an offer was sent and before its answer came, nothing is known, so the home comes back to
//! that very node ([`Effect::Attach`]) for as long as it takes, and asks elsewhere only when the
//! node says that it does not know the task.
//!
//! In: users' wishes, the controller's answers, the nodes' answers. Out: asks, offers, records.
//! Always true: a job has one attempt at a time; one that ended never changes again; an outcome is
//! acknowledged only when its record is stored.

mod machine;
#[cfg(test)]
mod tests;

pub use self::machine::{ENDED_MAX, Effect, Input, Jobs, UNENDED_MAX};

use serde::{Deserialize, Serialize};

use super::control::OrderKey;
use super::grant::Grant;
use super::id::{GpuUuid, JobId, NodeId};
use super::request::{Best, Need, WaitReason};
use super::task::{Command, Outcome, TaskId};
use super::time::WallTime;

/// What a user submitted. Never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// The job's id, drawn by its home.
    pub id: JobId,
    /// Who owns it.
    pub owner: String,
    /// What the user calls it: `--name`, or the program's name.
    pub name: String,
    /// What it needs.
    pub need: Need,
    /// What to run.
    pub command: Command,
    /// When it was submitted, for people.
    pub submitted: WallTime,
}

/// A job as its home keeps it on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobRecord {
    /// What was submitted.
    pub spec: JobSpec,
    /// The latest attempt: at most one is alive.
    pub task: TaskId,
    /// Its place in the queue, once the controller has stamped one.
    pub key: Option<OrderKey>,
    /// How far it is.
    pub state: JobState,
    /// Whether the user has cancelled it: it is never started again, and a running task is told.
    pub cancelled: bool,
}

/// How far a job is. Each state carries only what exists in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum JobState {
    /// It has ended; nothing of it is alive.
    Ended {
        /// How.
        outcome: Outcome,
        /// Where its task ran, if it ran: its output is there.
        place: Option<Place>,
        /// When, for people.
        at: WallTime,
    },
    /// No node of the mesh could ever run it, or it was cancelled before it ran, or it was refused.
    Rejected {
        /// Why.
        why: Rejection,
        /// When, for people.
        at: WallTime,
    },
    /// Its task runs.
    Running {
        /// Where.
        place: Place,
        /// Since when, for people.
        since: WallTime,
        /// Whether the stream to the node is open; if not, the home tries to open it again.
        connected: bool,
    },
    /// A node has been granted and is being asked.
    Starting {
        /// The grant in hand.
        grant: Grant,
    },
    /// It waits for GPUs.
    Waiting {
        /// Why.
        reason: WaitReason,
    },
}

impl JobState {
    /// Whether the job can change no more.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Rejected { .. })
    }
}

/// Where a task runs or ran.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The GPUs.
    pub gpus: Vec<GpuUuid>,
}

/// Why a job never ran.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Rejection {
    /// Its user cancelled it.
    Cancelled,
    /// No node could ever fill its need.
    Infeasible {
        /// The best that exists.
        best: Best,
    },
    /// The directory in which it is to run is on none of the nodes that could fill its need.
    NoDirectory {
        /// The nodes that were asked.
        nodes: Vec<NodeId>,
    },
    /// It was refused for good, or too often.
    Refused {
        /// In a sentence for the user.
        why: String,
    },
}

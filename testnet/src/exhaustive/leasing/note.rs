//! What travels in the model of leases.
//!
//! A network that loses, doubles, delays and reorders is a set to which things are only added: each
//! may arrive at any later time, as often as it likes, or never. One thing arrives at most once,
//! [`Note::Open`], because it is what opens a stream, and the transport opens a stream once: a
//! retransmission of QUIC or TCP is not seen above it, and nobody can replay what TLS carries. That
//! it may arrive late, when its home has long given the stream up, is all there. One model allows
//! even that: it may arrive again and again. An answer belongs to its stream, and a home that has
//! closed the stream does not hear it.

use gpuvine::core::grant::{Grant, Refusal};
use gpuvine::core::signed::Signed;
use gpuvine::core::task::{Outcome, TaskId};

use super::cast::Cast;

/// A stream between a home and a node. Two are never the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Stream {
    /// Whose stream it is: a job has its own home.
    pub(super) job: u8,
    /// The how manieth of this job.
    pub(super) number: u8,
}

impl Stream {
    /// The name of an offer that came on this stream.
    pub(super) fn offer(self) -> u64 {
        u64::from(self.job) << 8 | u64::from(self.number)
    }

    /// The stream on which an offer came.
    pub(super) fn of(offer: u64) -> Self {
        let [.., job, number] = offer.to_be_bytes();
        Self { job, number }
    }
}

/// Something that is under way. It belongs to one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Note {
    /// From a home to a controller: GPUs, please.
    Ask { desk: u8, task: TaskId },
    /// From a controller to a home.
    Granted { desk: u8, grant: Signed<Grant> },
    /// From a home to a node: the first of a stream, with a grant.
    Open { node: u8, stream: Stream, grant: Signed<Grant> },
    /// From a home to a node: the first of a stream for a task that may be there.
    Attach { node: u8, stream: Stream, task: TaskId },
    /// From a home to a node: the outcome is recorded.
    Acknowledge { node: u8, task: TaskId },
    /// From a node to a home.
    Answer { node: u8, stream: Stream, task: TaskId, answer: Answer },
}

/// What a node says on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Accepted,
    Attached,
    Ended(Outcome),
    Refused(Refusal),
    Unknown,
}

impl Note {
    /// The job to which it belongs.
    pub(super) fn job(&self, cast: &Cast) -> usize {
        match self {
            Self::Ask { task, .. } | Self::Acknowledge { task, .. } => cast.job(task.job),
            Self::Granted { grant, .. } => cast.job(grant.value().job),
            Self::Open { stream, .. } | Self::Attach { stream, .. } => usize::from(stream.job),
            Self::Answer { stream, .. } => usize::from(stream.job),
        }
    }

    /// A note, for people.
    pub(super) fn tell(&self, cast: &Cast) -> String {
        match self {
            Self::Ask { desk, task } => {
                format!("controller {desk} is asked for task {}", cast.task(*task))
            }
            Self::Granted { grant, .. } => format!("the home hears: {}", granted(cast, grant)),
            Self::Open { node, stream, grant } => {
                let shown = granted(cast, grant);
                format!("node {node} is offered on stream {}: {shown}", stream.number)
            }
            Self::Attach { node, stream, task } => {
                let (task, number) = (cast.task(*task), stream.number);
                format!("node {node} is asked on stream {number} for task {task}")
            }
            Self::Acknowledge { node, task } => {
                format!("node {node} may forget task {}", cast.task(*task))
            }
            Self::Answer { node, stream, task, answer } => {
                let (task, number) = (cast.task(*task), stream.number);
                format!("the home hears of node {node} on stream {number}: {task} {answer:?}")
            }
        }
    }
}

fn granted(cast: &Cast, grant: &Signed<Grant>) -> String {
    let value = grant.value();
    let task = TaskId { job: value.job, attempt: value.attempt };
    let numbers: Vec<u64> = value.gpus.iter().map(|(_, seq)| seq.0).collect();
    format!(
        "task {} may have lease {numbers:?} of node {}, start {}, by controller {} in term {}",
        cast.task(task),
        cast.node(value.node),
        value.incarnation,
        cast.node(grant.signer()),
        value.term,
    )
}

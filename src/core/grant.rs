//! The controller's signed answer: this job may have these GPUs on this node.
//!
//! A grant is a recommendation with a signature. What makes a GPU taken is the lease that the
//! node's ledger makes; the grant names the lease number of each GPU that the controller saw, and
//! the ledger leases only if the numbers are still those (compare and swap). So one grant is worth
//! at most one lease, and two grants for one GPU are worth one.

use serde::{Deserialize, Serialize};

use super::control::OrderKey;
use super::id::{Attempt, GpuUuid, Incarnation, JobId, LeaseSeq, NodeId, Term};
use super::signed::Signable;

/// What the controller grants. One for each node of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The reign under which it was granted; its signer is the controller.
    pub term: Term,
    /// The job.
    pub job: JobId,
    /// The attempt; an older one than the node has seen is refused.
    pub attempt: Attempt,
    /// The job's home: the only member that may present this grant.
    pub home: NodeId,
    /// The only node that may honour it.
    pub node: NodeId,
    /// The start of that node that it was made for: after a restart it is worth nothing.
    pub incarnation: Incarnation,
    /// The GPUs, with the lease number that the controller saw.
    pub gpus: Vec<(GpuUuid, LeaseSeq)>,
    /// The place in the queue that the request has had, for when it has to ask again.
    pub key: OrderKey,
    /// For how many milliseconds the home tries to present it, counted on each side's own monotonic
    /// clock: the home from its arrival, the controller, a little longer, from its sending.
    pub ttl_ms: u32,
}

impl Signable for Grant {
    const CONTEXT: &'static [u8] = b"gpuvine/grant/1\0";
}

/// Why a node refused a grant. A value, not an error: the home tells the controller and asks again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Refusal {
    /// The grant names another node.
    OtherNode,
    /// It was made for an earlier start of this node.
    OtherIncarnation,
    /// Who presents it is not the home that it names.
    OtherHome,
    /// It was signed by the lower of two controllers of its term, as far as this node knows.
    NotController,
    /// Its term is older than one this node has heard of.
    OldTerm {
        /// The newest term known here.
        newest: Term,
    },
    /// This node has seen a later attempt of the job.
    OldAttempt {
        /// The latest attempt seen.
        latest: Attempt,
    },
    /// One of its GPUs has been leased since, or is leased now.
    Taken {
        /// The GPU.
        gpu: GpuUuid,
    },
    /// One of its GPUs cannot be used.
    Unusable {
        /// The GPU.
        gpu: GpuUuid,
        /// Why.
        why: String,
    },
    /// One of its GPUs is not here.
    UnknownGpu {
        /// The GPU.
        gpu: GpuUuid,
    },
    /// The directory that the job is to run in is not there.
    NoDirectory,
    /// The node takes no tasks now.
    NotServing,
    /// The submitter's membership does not allow it to submit.
    MayNotSubmit,
    /// The node runs as many tasks as it may.
    TooManyTasks {
        /// The limit.
        limit: u32,
    },
    /// The task could not be started.
    CannotStart {
        /// What went wrong, in a sentence for the user.
        why: String,
        /// Whether another node might do better; if not, the job fails.
        elsewhere: bool,
    },
}

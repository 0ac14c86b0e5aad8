//! What homes and the controller say to each other: asks, grants, and the notices around them.

use serde::{Deserialize, Serialize};

use super::grant::{Grant, Refusal};
use super::id::{Incarnation, NodeId, Reign, Term};
use super::report::{GPUS_MAX, Report, TEXT_MAX};
use super::request::{Best, Need, WaitReason};
use super::signed::{Signable, Signed};
use super::task::TaskId;

/// A job's place in the queue, stamped once by the controller that heard of it first and kept by
/// the home: no wall clock orders the queue, and a failover does not reorder it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OrderKey {
    /// The reign that stamped it.
    pub term: Term,
    /// Its number within the reign.
    pub seq: u64,
}

/// A home's request for GPUs for one attempt. Idempotent: asking again replaces the ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// The attempt that needs them.
    pub task: TaskId,
    /// What it needs.
    pub need: Need,
    /// The job's owner.
    pub owner: String,
    /// The place in the queue, if one was given already.
    pub key: Option<OrderKey>,
    /// Grants of this attempt that were refused, the latest last, at most [`REFUSED_MAX`]: the
    /// controller learns from them what its directory did not know.
    pub refused: Vec<(Grant, Refusal)>,
    /// Starts of nodes that have refused the job for good, at most [`BARRED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<(NodeId, Incarnation)>,
}

impl Ask {
    /// An ask as a member may make it, without what only its home needs; `None` if it is larger
    /// than any that a home of ours makes, so that what waits at a controller stays bounded.
    pub fn checked(mut self) -> Option<Self> {
        let fits = |text: &str| text.len() <= TEXT_MAX;
        for (grant, refusal) in &mut self.refused {
            if let Refusal::CannotStart { why, .. } | Refusal::Unusable { why, .. } = refusal {
                why.clear();
            }
            let named = match refusal {
                Refusal::Taken { gpu }
                | Refusal::Unusable { gpu, .. }
                | Refusal::UnknownGpu { gpu } => Some(&*gpu),
                _ => None,
            };
            let gpus = grant.gpus.iter().map(|(gpu, _)| gpu).chain(named);
            if grant.gpus.len() > GPUS_MAX || gpus.into_iter().any(|gpu| !fits(&gpu.0)) {
                return None;
            }
        }
        let is_small = fits(self.need.model.as_deref().unwrap_or_default())
            && fits(&self.owner)
            && self.refused.len() <= REFUSED_MAX
            && self.barred.len() <= BARRED_MAX;
        is_small.then_some(self)
    }
}

/// Nodes that may have refused a job for good before it is given up.
pub const BARRED_MAX: usize = 50;

/// Refusals kept in an ask.
pub const REFUSED_MAX: usize = 4;

/// Asks in one [`Message::Present`]; a home with more sends the rest as single asks.
pub const PRESENT_ASKS_MAX: usize = 256;

/// What travels between a home and the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Home to controller: GPUs, please.
    Ask(Ask),
    /// Node to controller: my leases changed. Goes ahead of the gossip of the same report.
    Changed(Signed<Report>),
    /// Controller to home: the membership of this home does not allow it to submit.
    Forbidden {
        /// The attempt.
        task: TaskId,
    },
    /// Controller to home: the queue has no room for this ask; ask again later.
    Full {
        /// The attempt.
        task: TaskId,
    },
    /// Controller to home: here they are.
    Granted(Signed<Grant>),
    /// Controller to home: no node of the mesh could ever fill this need.
    Infeasible {
        /// The attempt.
        task: TaskId,
        /// The best that exists.
        best: Best,
    },
    /// Anyone to a home or node that took it for the controller: I am not; this is whom I follow.
    NotController {
        /// The reign that the sender follows, if any.
        follows: Option<Reign>,
        /// The attempt that was asked for, if it was an ask.
        task: Option<TaskId>,
    },
    /// Member to a new controller, in its term: my report, and all that waits here.
    Present {
        /// The term that this answers.
        term: Term,
        /// The member's latest report.
        report: Signed<Report>,
        /// What waits at this home, at most [`PRESENT_ASKS_MAX`].
        asks: Vec<Ask>,
    },
    /// Controller to home: every node that could ever fill this need has refused the job for good.
    Barred {
        /// The attempt.
        task: TaskId,
    },
    /// Controller to home: it waits; this is its place, and why.
    Queued {
        /// The attempt.
        task: TaskId,
        /// Its place, to be kept and presented to every later controller.
        key: OrderKey,
        /// Why it waits.
        reason: WaitReason,
    },
    /// Home to controller: the ask, or the grant already made for it, is not needed any more.
    Withdraw {
        /// The attempt.
        task: TaskId,
    },
}

/// A control message that could not go straight to its receiver and travels over another member.
/// Signed by its true sender: the member between can drop it, not change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relayed {
    /// For whom it is.
    pub to: NodeId,
    /// The message.
    pub message: Message,
}

impl Signable for Relayed {
    const CONTEXT: &'static [u8] = b"gpuvine/relayed/1\0";
}

//! How everything outside the core tells it something: one bounded queue into the driver.
//!
//! The queue is the backpressure of the daemon: who asks waits for room. The driver never waits for
//! any of them, so nobody here can be in a circle.

use tokio::sync::{mpsc, oneshot, watch};

use super::home::Attachment;
use crate::api;
use crate::core::grant::{Grant, Refusal};
use crate::core::id::{GpuUuid, JobId, NodeId, Term};
use crate::core::job::{self, JobRecord};
use crate::core::ledger::{self, LeaseRecord, Trace};
use crate::core::request::Need;
use crate::core::signed::Signed;
use crate::core::task::{Command, TaskId};
use crate::gpu::Reading;

/// Requests that may wait for the driver.
pub(crate) const INBOX_MAX: usize = 1024;

/// Something that the core is told or asked.
#[derive(Debug)]
pub(crate) enum Request {
    /// A user cancels a job.
    Cancel { job: JobId, now: bool },
    /// The GPUs were looked at.
    Gpus(Reading),
    /// About a job, from its stream.
    Job(job::Input),
    /// A home asks for its task: is there a lease, or was there? If not there never will be.
    Trace { task: TaskId, home: NodeId, reply: oneshot::Sender<Trace> },
    /// The daemon shall leave the mesh and stop.
    Leave,
    /// About a lease, from its task.
    Ledger(ledger::Input),
    /// A grant is presented to this node.
    Offer { offered: Box<Offered>, reply: oneshot::Sender<Answer> },
    /// Somebody looks.
    Look(Look),
    /// A job was written to disk.
    JobStored { job: JobId, ended: bool },
    /// A user submits.
    Submit { draft: Box<Draft>, reply: oneshot::Sender<Result<Submitted, String>> },
    /// A term was written to disk.
    TermStored(Term),
    /// Bytes of memory that are available.
    MemoryFree(u64),
}

/// Questions, answered from the core's state.
#[derive(Debug)]
pub(crate) enum Look {
    /// The board.
    Gpus(oneshot::Sender<Vec<api::GpuView>>),
    /// One job of this home, by its id or the beginning of it.
    Job { prefix: String, reply: oneshot::Sender<Result<Found, NotFound>> },
    /// Jobs: this home's, or with `all` also those that the directory shows.
    Jobs { all: bool, reply: oneshot::Sender<Vec<api::JobView>> },
    /// The nodes.
    Nodes(oneshot::Sender<Vec<api::NodeView>>),
    /// This node.
    Status(oneshot::Sender<api::Status>),
}

/// A job that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// What is kept of it.
    pub(crate) record: JobRecord,
    /// As users see it.
    pub(crate) view: api::JobView,
    /// As it changes.
    pub(crate) changes: watch::Receiver<api::JobView>,
}

/// Why no job was found.
#[derive(Debug)]
pub(crate) enum NotFound {
    /// The beginning fits several: these, at most ten.
    Ambiguous(Vec<JobId>),
    /// Nothing fits.
    Unknown,
}

/// What a user submits.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Who owns the job.
    pub(crate) owner: String,
    /// What it is called.
    pub(crate) name: String,
    /// What it needs.
    pub(crate) need: Need,
    /// The only node that will do, by name or id.
    pub(crate) node: Option<String>,
    /// What to run.
    pub(crate) command: Command,
    /// The user who watches, if one does.
    pub(crate) attachment: Option<Attachment>,
}

/// A job that was taken on.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// Its id.
    pub(crate) job: JobId,
    /// As it changes.
    pub(crate) changes: watch::Receiver<api::JobView>,
}

/// A grant that a home presents to this node.
#[derive(Debug)]
pub(crate) struct Offered {
    /// Who presents it.
    pub(crate) from: NodeId,
    /// Whether that member may submit.
    pub(crate) may_submit: bool,
    /// The grant.
    pub(crate) grant: Signed<Grant>,
    /// The job's owner.
    pub(crate) owner: String,
    /// The job's name.
    pub(crate) name: String,
}

/// What the ledger says to it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Leased: start it.
    Accepted(Lease),
    /// No, because of this.
    Refused(Refusal),
    /// Leased long ago: it runs.
    Resume,
}

/// A lease as the task needs it.
#[derive(Debug)]
pub(crate) struct Lease {
    /// What is kept beside the task.
    pub(crate) record: LeaseRecord,
    /// Its GPUs, with their indices.
    pub(crate) gpus: Vec<(GpuUuid, u32)>,
}

/// The door to the driver.
#[derive(Clone, Debug)]
pub(crate) struct Inbox(mpsc::Sender<Request>);

impl Inbox {
    /// A door, and what the driver reads behind it.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(INBOX_MAX);
        (Self(sender), receiver)
    }

    /// Tells the driver. If it is gone the daemon is stopping and nobody needs to know.
    pub(crate) async fn tell(&self, request: Request) {
        let _ = self.0.send(request).await;
    }

    /// The same from a thread that is not tokio's.
    pub(crate) fn tell_blocking(&self, request: Request) {
        let _ = self.0.blocking_send(request);
    }

    /// Asks the driver; `None` if the daemon is stopping.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.tell(request(reply)).await;
        answer.await.ok()
    }

    /// Looks at the core's state; `None` if the daemon is stopping.
    pub(crate) async fn look<T>(&self, look: impl FnOnce(oneshot::Sender<T>) -> Look) -> Option<T> {
        self.ask(|reply| Request::Look(look(reply))).await
    }

    /// Tells the core about a job.
    pub(crate) async fn job(&self, input: job::Input) {
        self.tell(Request::Job(input)).await;
    }

    /// Tells the core about a lease.
    pub(crate) async fn ledger(&self, input: ledger::Input) {
        self.tell(Request::Ledger(input)).await;
    }

    /// Presents a grant to the ledger.
    pub(crate) async fn offer(&self, offered: Offered) -> Option<Answer> {
        self.ask(|reply| Request::Offer { offered: Box::new(offered), reply }).await
    }

    /// What the ledger knows of a home's task. If that is nothing, it never will know it.
    pub(crate) async fn trace(&self, task: TaskId, home: NodeId) -> Option<Trace> {
        self.ask(|reply| Request::Trace { task, home, reply }).await
    }

    /// The home of a task knows its outcome.
    pub(crate) async fn acknowledged(&self, task: TaskId) {
        self.ledger(ledger::Input::Acknowledged { task }).await;
    }
}

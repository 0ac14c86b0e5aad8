//! The machine of [`super`]: jobs of this home and what is due for each.

mod ask;
mod follow;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{JobRecord, JobSpec, JobState, Place, Rejection};
use crate::core::control::{Ask, Message};
use crate::core::grant::{Grant, Refusal};
use crate::core::id::{Attempt, Incarnation, JobId, NodeId, Reign};
use crate::core::outbox::Outbox;
use crate::core::request::WaitReason;
use crate::core::signed::Signed;
use crate::core::task::{Outcome, TaskId};
use crate::core::time::{Duration, Instant, WallTime};

/// Jobs of one home that have not ended; more are not taken on.
pub const UNENDED_MAX: usize = 10_000;

/// Ended jobs that a home remembers; the oldest are forgotten.
pub const ENDED_MAX: usize = 10_000;

/// Attempts of one job that could not be started before it is given up.
const ATTEMPTS_MAX: u64 = 50;

/// What is told to a user whose node may not submit.
const MAY_NOT_SUBMIT: &str = "this node may not submit: it needs a ticket with the role `submit`";

/// How soon an ask is repeated that got no answer, and that did.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_STILL: Duration = Duration::from_secs(15);

/// How soon a lost stream is opened again: the first, and the longest, of growing waits.
const ATTACH_FIRST: Duration = Duration::from_millis(100);
const ATTACH_LONGEST: Duration = Duration::from_secs(10);

/// How soon an ask is repeated after a second refusal in a row.
const REFUSED_FIRST: Duration = Duration::from_millis(50);

/// What the jobs are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The node accepted the offer: the task runs there.
    Accepted {
        /// The task.
        task: TaskId,
        /// Since when, for people.
        since: WallTime,
    },
    /// The node knows the task; the stream is open again.
    Attached {
        /// The task.
        task: TaskId,
        /// Since when it runs, for people.
        since: WallTime,
    },
    /// Its user does not want the job any more.
    Cancel {
        /// The job.
        job: JobId,
        /// Without grace.
        now: bool,
    },
    /// Another controller is followed, or none.
    Controller(Option<Reign>),
    /// The deadline has come.
    Deadline,
    /// The task has ended.
    Ended {
        /// The task.
        task: TaskId,
        /// How.
        outcome: Outcome,
        /// When, for people.
        at: WallTime,
    },
    /// A node can be reached (again).
    NodeUp(NodeId),
    /// A job of before this start of the daemon.
    Recall(Box<JobRecord>),
    /// A message of a member.
    Received(NodeId, Box<Message>),
    /// The node refused the offer.
    Refused {
        /// The task.
        task: TaskId,
        /// Why.
        refusal: Refusal,
    },
    /// A record of a job is stored.
    Stored {
        /// The job.
        job: JobId,
        /// Whether it was the record of its end.
        ended: bool,
    },
    /// The stream to the node broke after something was sent on it.
    StreamLost {
        /// The task.
        task: TaskId,
    },
    /// A user submits a job.
    Submit(Box<JobSpec>),
    /// The node does not know the task.
    UnknownTask {
        /// The task.
        task: TaskId,
    },
    /// No stream to the node could be opened; nothing was sent.
    Unreachable {
        /// The task.
        task: TaskId,
        /// Why, in a sentence.
        why: String,
    },
}

/// What the jobs want done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the node that the outcome is recorded.
    Acknowledge {
        /// The task.
        task: TaskId,
    },
    /// Open a stream to the node for a task that it has, or may have.
    Attach {
        /// The task.
        task: TaskId,
        /// The node.
        node: NodeId,
    },
    /// The job is another: whoever watches it wants to know.
    Changed(JobId),
    /// Say this to the controller.
    Control(Message),
    /// Remove the job's record.
    Forget(JobId),
    /// Open a stream to the node and present the grant.
    Offer {
        /// The task.
        task: TaskId,
        /// The grant; it names the node.
        grant: Signed<Grant>,
    },
    /// Present this home to a new controller, with what waits here.
    Present(Vec<Ask>),
    /// Tell the node to end the task.
    Stop {
        /// The task.
        task: TaskId,
        /// Without grace.
        now: bool,
    },
    /// Keep this record; [`Input::Stored`] answers, and tells whether it was the last.
    Store(Box<JobRecord>),
}

/// The jobs of this home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jobs {
    me: NodeId,
    jobs: BTreeMap<JobId, Entry>,
    /// When something is due for a job; each job has at most one entry, that of `Entry::due`.
    due: BTreeSet<(Instant, JobId)>,
    /// Ended jobs, the oldest first.
    ended: VecDeque<JobId>,
    controller: Option<Reign>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    record: JobRecord,
    due: Option<Instant>,
    /// Tries in a row of what is being tried: asking, or attaching.
    tries: u32,
    /// Whether the offer may have arrived although no answer came: the task may be alive.
    doubt: bool,
    /// Whether it is from before this start of the daemon: attempts may have been made that its
    /// record does not show, so that it is followed, but never placed again.
    recalled: bool,
    /// Whether the record of its end is on disk.
    recorded: bool,
    refused: Vec<(Grant, Refusal)>,
    /// Starts of nodes that do not have its directory.
    barred: Vec<(NodeId, Incarnation)>,
}

impl Jobs {
    /// No jobs yet.
    pub fn new(me: NodeId) -> Self {
        Self {
            me,
            jobs: BTreeMap::new(),
            due: BTreeSet::new(),
            ended: VecDeque::new(),
            controller: None,
        }
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Jobs that have not ended.
    pub fn unended(&self) -> usize {
        self.jobs.len() - self.ended.len()
    }

    /// Whether another job is taken on.
    pub fn has_room(&self) -> bool {
        self.unended() < UNENDED_MAX
    }

    /// The record of a job.
    pub fn find(&self, job: JobId) -> Option<&JobRecord> {
        self.jobs.get(&job).map(|entry| &entry.record)
    }

    /// All jobs.
    pub fn iter(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|entry| &entry.record)
    }

    /// Handles one input; `at` is the time for people.
    pub fn handle(&mut self, input: Input, now: Instant, at: WallTime, out: &mut Outbox<Effect>) {
        match input {
            Input::Accepted { task, since } => self.on_running(task, since, true, out),
            Input::Attached { task, since } => self.on_running(task, since, false, out),
            Input::Cancel { job, now: hard } => self.on_cancel(job, hard, at, out),
            Input::Controller(reign) => self.on_controller(reign, now, out),
            Input::Deadline => self.on_deadline(now, out),
            Input::Ended { task, outcome, at } => self.on_ended(task, outcome, at, out),
            Input::NodeUp(node) => self.on_node_up(node, now, out),
            Input::Recall(record) => self.on_recall(*record, now, at, out),
            Input::Received(from, message) => self.on_received(from, *message, now, at, out),
            Input::Refused { task, refusal } => self.on_refused(task, refusal, now, at, out),
            Input::Stored { job, ended } => self.on_stored(job, ended, out),
            Input::StreamLost { task } => self.on_stream_lost(task, now, out),
            Input::Submit(spec) => self.on_submit(*spec, now, out),
            Input::UnknownTask { task } => self.on_unknown(task, now, at, out),
            // Nothing was sent now, but something may have been before.
            Input::Unreachable { task, .. } if self.may_be_alive(task) => {
                self.on_stream_lost(task, now, out);
            }
            Input::Unreachable { task, why } => {
                let refusal = Refusal::CannotStart { why, elsewhere: true };
                self.on_refused(task, refusal, now, at, out);
            }
        }
    }

    fn on_submit(&mut self, spec: JobSpec, now: Instant, out: &mut Outbox<Effect>) {
        let job = spec.id;
        if self.jobs.contains_key(&job) || !self.has_room() {
            return;
        }
        let record = JobRecord {
            task: TaskId { job, attempt: Attempt(1) },
            spec,
            key: None,
            state: JobState::Waiting { reason: WaitReason::NoController },
            cancelled: false,
        };
        out.push(Effect::Store(Box::new(record.clone())));
        self.jobs.insert(job, Entry::new(record));
        self.ask(job, now, out);
    }

    /// A job that waits on disk may have been offered just before the end of the last daemon: the
    /// record of a grant is not waited for. So it is never placed again by itself; its user, who
    /// watched it, is told.
    fn on_recall(
        &mut self,
        mut record: JobRecord,
        now: Instant,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        let job = record.spec.id;
        if let JobState::Running { connected, .. } = &mut record.state {
            *connected = false;
        }
        if record.state.is_ended() {
            self.ended.push_back(job);
        }
        let waits = matches!(record.state, JobState::Waiting { .. });
        let doubt = matches!(record.state, JobState::Starting { .. });
        let recorded = record.state.is_ended();
        self.jobs.insert(job, Entry { doubt, recalled: true, recorded, ..Entry::new(record) });
        if waits {
            self.lose(job, at, out);
        } else {
            self.attach(job, now, out);
        }
        self.forget_oldest(out);
    }

    /// Opens the stream to the node that has, or may have, the task of a job.
    fn attach(&mut self, job: JobId, now: Instant, out: &mut Outbox<Effect>) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let node = match &entry.record.state {
            JobState::Starting { grant } => grant.node,
            JobState::Running { place, connected: false, .. } => place.node,
            _ => return,
        };
        out.push(Effect::Attach { task: entry.record.task, node });
        if entry.record.cancelled {
            out.push(Effect::Stop { task: entry.record.task, now: false });
        }
        let wait = growing(ATTACH_FIRST, entry.tries, ATTACH_LONGEST) + ATTACH_LONGEST;
        entry.tries = entry.tries.saturating_add(1);
        // Who opens the stream answers; should the answer never come, this tries again.
        self.set_due(job, Some(now + wait));
    }

    fn on_received(
        &mut self,
        from: NodeId,
        message: Message,
        now: Instant,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        // Only the controller that is followed is believed; its words of yesterday are not.
        if self.controller.is_none_or(|reign| reign.controller != from) {
            return;
        }
        match message {
            Message::Forbidden { task } if self.waits(task) => {
                let why = MAY_NOT_SUBMIT.into();
                self.reject(task.job, Rejection::Refused { why }, at, out);
            }
            Message::Granted(grant) => self.on_granted(grant, out),
            Message::Barred { task } if self.waits(task) => self.reject_barred(task.job, at, out),
            Message::Infeasible { task, best } if self.waits(task) => {
                self.reject(task.job, Rejection::Infeasible { best }, at, out);
            }
            Message::Queued { task, key, reason } if self.waits(task) => {
                let Some(entry) = self.jobs.get_mut(&task.job) else { return };
                // One reign may have stamped what another had already: the earliest place counts.
                let stamped = entry.record.key.is_none_or(|known| key < known);
                if stamped {
                    entry.record.key = Some(key);
                }
                let state = JobState::Waiting { reason };
                let before = std::mem::replace(&mut entry.record.state, state);
                if stamped {
                    out.push(Effect::Store(Box::new(entry.record.clone())));
                }
                out.push(Effect::Changed(task.job));
                // News does not put the next asking off: a request that is not repeated is dropped.
                if is_unanswered(&before) {
                    self.set_due(task.job, Some(now + ASK_STILL));
                }
            }
            Message::Full { task } if self.waits(task) => {
                let Some(entry) = self.jobs.get_mut(&task.job) else { return };
                entry.record.state = JobState::Waiting { reason: WaitReason::Full };
                out.push(Effect::Changed(task.job));
            }
            _ => {}
        }
    }

    fn on_granted(&mut self, grant: Signed<Grant>, out: &mut Outbox<Effect>) {
        let value = grant.value();
        let task = TaskId { job: value.job, attempt: value.attempt };
        if value.home != self.me {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&task.job).filter(|entry| entry.record.task == task)
        else {
            // Nobody here wants it (any more): its GPUs need not be held.
            out.push(Effect::Control(Message::Withdraw { task }));
            return;
        };
        match &entry.record.state {
            JobState::Waiting { .. } => {
                entry.record.state = JobState::Starting { grant: value.clone() };
                entry.record.key.get_or_insert(value.key);
                entry.tries = 0;
                entry.doubt = false;
                // To have it on disk before the offer is sent would cost every submission a flush.
                // It is not needed: a job that still waits on disk is never placed again.
                out.push(Effect::Store(Box::new(entry.record.clone())));
                out.push(Effect::Changed(task.job));
                out.push(Effect::Offer { task, grant });
                self.set_due(task.job, None);
            }
            // The same again: it is being presented.
            JobState::Starting { grant: held } if held == value => {}
            // For an ask that came late: its GPUs need not be held.
            JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Ended { .. }
            | JobState::Rejected { .. } => out.push(Effect::Control(Message::Withdraw { task })),
        }
    }

    fn on_deadline(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        while let Some((at, job)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, job));
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            entry.due = None;
            if matches!(entry.record.state, JobState::Waiting { .. }) {
                // What was refused a while ago may be different now.
                if entry.tries > 1 {
                    entry.refused.clear();
                }
                self.ask(job, now, out);
            } else {
                self.attach(job, now, out);
            }
        }
    }

    fn waits(&self, task: TaskId) -> bool {
        self.jobs.get(&task.job).is_some_and(|entry| {
            entry.record.task == task && matches!(entry.record.state, JobState::Waiting { .. })
        })
    }

    /// The job of a task, if that is its latest attempt: what comes late for another is dropped.
    fn entry(&mut self, task: TaskId) -> Option<&mut Entry> {
        self.jobs.get_mut(&task.job).filter(|entry| entry.record.task == task)
    }

    fn set_due(&mut self, job: JobId, at: Option<Instant>) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if let Some(before) = std::mem::replace(&mut entry.due, at) {
            self.due.remove(&(before, job));
        }
        if let Some(at) = at {
            self.due.insert((at, job));
        }
    }
}

impl Entry {
    fn new(record: JobRecord) -> Self {
        Self {
            record,
            due: None,
            tries: 0,
            doubt: false,
            recalled: false,
            recorded: false,
            refused: Vec::new(),
            barred: Vec::new(),
        }
    }

    fn ask(&self) -> Ask {
        Ask {
            task: self.record.task,
            need: self.record.spec.need.clone(),
            owner: self.record.spec.owner.clone(),
            key: self.record.key,
            refused: self.refused.clone(),
            barred: self.barred.clone(),
        }
    }

    /// Whether a stream to this node is what the job is waiting for.
    fn waits_for(&self, node: NodeId) -> bool {
        match &self.record.state {
            JobState::Starting { grant } => grant.node == node,
            JobState::Running { place, connected: false, .. } => place.node == node,
            _ => false,
        }
    }
}

impl Place {
    /// Where a grant sends its task.
    fn of(grant: &Grant) -> Self {
        let gpus = grant.gpus.iter().map(|(gpu, _)| gpu.clone()).collect();
        Self { node: grant.node, gpus }
    }
}

/// Whether a job waits for a first word of the controller.
fn is_unanswered(state: &JobState) -> bool {
    matches!(state, JobState::Waiting { reason: WaitReason::NoController })
}

/// The wait before the next of some tries: doubled each time, up to a limit.
fn growing(first: Duration, tries: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << tries.min(10)).min(longest)
}

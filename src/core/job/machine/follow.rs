//! What the node says of a task: that it runs, refuses, is lost, has ended; and what the user says
//! of it.

use std::collections::BTreeMap;

use super::{
    ASK_AGAIN, ATTACH_FIRST, ATTACH_LONGEST, ATTEMPTS_MAX, ENDED_MAX, Effect, Jobs, MAY_NOT_SUBMIT,
    REFUSED_FIRST, growing,
};
use crate::core::control::{BARRED_MAX, Message, REFUSED_MAX};
use crate::core::grant::Refusal;
use crate::core::id::{JobId, NodeId};
use crate::core::job::{JobState, Place, Rejection};
use crate::core::outbox::Outbox;
use crate::core::request::WaitReason;
use crate::core::task::{Outcome, TaskId};
use crate::core::time::{Instant, WallTime};

impl Jobs {
    /// What nodes have refused a job that waits, the latest last, each node once.
    pub fn refusals(&self, job: JobId) -> impl Iterator<Item = (NodeId, Refusal)> {
        let entry = self.jobs.get(&job).filter(|entry| !entry.record.state.is_ended());
        let barred = entry.into_iter().flat_map(|entry| &entry.barred);
        let barred = barred.map(|(node, _)| (*node, Refusal::NoDirectory));
        let refused = entry.into_iter().flat_map(|entry| &entry.refused);
        let refused = refused.map(|(grant, refusal)| (grant.node, refusal.clone()));
        barred.chain(refused).collect::<BTreeMap<_, _>>().into_iter()
    }

    pub(super) fn on_running(
        &mut self,
        task: TaskId,
        since: WallTime,
        fresh: bool,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.entry(task) else { return };
        let place = match &entry.record.state {
            JobState::Starting { grant } => Place::of(grant),
            JobState::Running { place, .. } => place.clone(),
            _ => return,
        };
        entry.record.state = JobState::Running { place, since, connected: true };
        entry.tries = 0;
        entry.refused.clear();
        out.push(Effect::Store(Box::new(entry.record.clone())));
        out.push(Effect::Changed(task.job));
        if entry.record.cancelled && !fresh {
            out.push(Effect::Stop { task, now: false });
        }
        self.set_due(task.job, None);
    }

    pub(super) fn on_refused(
        &mut self,
        task: TaskId,
        refusal: Refusal,
        now: Instant,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.entry(task) else { return };
        let JobState::Starting { grant } = &entry.record.state else { return };
        let grant = grant.clone();
        // The node has seen this attempt: it may be alive there, cancelled or not.
        if matches!(refusal, Refusal::OldAttempt { .. }) {
            entry.doubt = true;
            self.attach(task.job, now, out);
            return;
        }
        if entry.record.cancelled {
            out.push(Effect::Control(Message::Withdraw { task }));
            self.reject(task.job, Rejection::Cancelled, at, out);
            return;
        }
        match &refusal {
            Refusal::CannotStart { why, elsewhere: false } => {
                let why = why.clone();
                self.reject(task.job, Rejection::Refused { why }, at, out);
                return;
            }
            Refusal::NoDirectory => {
                let start = (grant.node, grant.incarnation);
                entry.barred.retain(|(node, _)| *node != start.0);
                entry.barred.push(start);
                if entry.barred.len() >= BARRED_MAX || task.attempt.0 >= ATTEMPTS_MAX {
                    self.reject_barred(task.job, at, out);
                    return;
                }
                entry.record.task.attempt = task.attempt.next();
                self.wait_again(task.job, 0, now, out);
                return;
            }
            Refusal::CannotStart { why, .. } if task.attempt.0 >= ATTEMPTS_MAX => {
                let why = format!("{ATTEMPTS_MAX} attempts could not be started, the last: {why}");
                self.reject(task.job, Rejection::Refused { why }, at, out);
                return;
            }
            // So would every other node.
            Refusal::MayNotSubmit => {
                let why = MAY_NOT_SUBMIT.into();
                self.reject(task.job, Rejection::Refused { why }, at, out);
                return;
            }
            // Leased and given back: this attempt is over for good.
            Refusal::CannotStart { .. } => {
                entry.record.task.attempt = task.attempt.next();
            }
            _ => {}
        }
        if entry.refused.len() >= REFUSED_MAX {
            entry.refused.remove(0);
        }
        entry.refused.push((grant, refusal));
        let tries = entry.tries;
        entry.tries = entry.tries.saturating_add(1);
        self.wait_again(task.job, tries, now, out);
    }

    /// Back to waiting: asks at once after the first failure, later after the others.
    pub(super) fn wait_again(
        &mut self,
        job: JobId,
        tries: u32,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        entry.record.state = JobState::Waiting { reason: WaitReason::NoController };
        out.push(Effect::Store(Box::new(entry.record.clone())));
        out.push(Effect::Changed(job));
        if tries == 0 {
            self.ask(job, now, out);
        } else {
            self.set_due(job, Some(now + growing(REFUSED_FIRST, tries, ASK_AGAIN)));
        }
    }

    /// Ends a job whose directory is nowhere, unless no node has said so: then it waits on.
    pub(super) fn reject_barred(&mut self, job: JobId, at: WallTime, out: &mut Outbox<Effect>) {
        let Some(entry) = self.jobs.get(&job).filter(|entry| !entry.barred.is_empty()) else {
            return;
        };
        let nodes = entry.barred.iter().map(|(node, _)| *node).collect();
        self.reject(job, Rejection::NoDirectory { nodes }, at, out);
    }

    /// Whether a task is known to run, or was offered without an answer.
    pub(super) fn may_be_alive(&self, task: TaskId) -> bool {
        self.jobs.get(&task.job).is_some_and(|entry| {
            let runs = matches!(entry.record.state, JobState::Running { .. });
            entry.record.task == task && (runs || entry.doubt)
        })
    }

    pub(super) fn on_stream_lost(&mut self, task: TaskId, now: Instant, out: &mut Outbox<Effect>) {
        let Some(entry) = self.entry(task) else { return };
        match &mut entry.record.state {
            JobState::Running { connected, .. } => {
                if std::mem::replace(connected, false) {
                    entry.tries = 0;
                    out.push(Effect::Changed(task.job));
                }
            }
            JobState::Starting { .. } => entry.doubt = true,
            _ => return,
        }
        let wait = growing(ATTACH_FIRST, entry.tries, ATTACH_LONGEST);
        self.set_due(task.job, Some(now + wait));
    }

    pub(super) fn on_unknown(
        &mut self,
        task: TaskId,
        now: Instant,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.entry(task) else { return };
        match &entry.record.state {
            JobState::Starting { .. } if entry.record.cancelled => {
                self.reject(task.job, Rejection::Cancelled, at, out);
            }
            JobState::Starting { .. } if entry.recalled => self.lose(task.job, at, out),
            JobState::Starting { .. } if task.attempt.0 >= ATTEMPTS_MAX => {
                let why = format!("{ATTEMPTS_MAX} attempts were lost on their way to a node");
                self.reject(task.job, Rejection::Refused { why }, at, out);
            }
            JobState::Starting { .. } => {
                // Never accepted. The next attempt has another number, so that an offer still on
                // its way is refused as an old one.
                entry.record.task.attempt = task.attempt.next();
                entry.tries = 0;
                self.wait_again(task.job, 0, now, out);
            }
            JobState::Running { .. } => {
                let why = "its node has lost all trace of it".to_owned();
                self.on_ended(task, Outcome::Lost { why }, at, out);
            }
            _ => {}
        }
    }

    pub(super) fn on_ended(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.entry(task) else { return };
        let place = match &entry.record.state {
            JobState::Starting { grant } => Place::of(grant),
            JobState::Running { place, .. } => place.clone(),
            // Told again: the acknowledgement was lost, or waits for the disk.
            JobState::Ended { .. } => {
                if entry.recorded {
                    out.push(Effect::Acknowledge { task });
                }
                return;
            }
            _ => return,
        };
        self.end(task.job, JobState::Ended { outcome, place: Some(place), at }, out);
    }

    /// A job of before this start that may have been placed since its record was written.
    pub(super) fn lose(&mut self, job: JobId, at: WallTime, out: &mut Outbox<Effect>) {
        let why = "this node was restarted while it was being placed: submit it again".to_owned();
        self.end(job, JobState::Ended { outcome: Outcome::Lost { why }, place: None, at }, out);
    }

    pub(super) fn reject(
        &mut self,
        job: JobId,
        why: Rejection,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        self.end(job, JobState::Rejected { why, at }, out);
    }

    pub(super) fn end(&mut self, job: JobId, state: JobState, out: &mut Outbox<Effect>) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        debug_assert!(!entry.record.state.is_ended(), "a job ends once");
        entry.record.state = state;
        entry.refused = Vec::new();
        out.push(Effect::Store(Box::new(entry.record.clone())));
        out.push(Effect::Changed(job));
        self.set_due(job, None);
        self.ended.push_back(job);
        self.forget_oldest(out);
    }

    pub(super) fn forget_oldest(&mut self, out: &mut Outbox<Effect>) {
        while self.ended.len() > ENDED_MAX {
            let Some(job) = self.ended.pop_front() else { return };
            self.jobs.remove(&job);
            out.push(Effect::Forget(job));
        }
    }

    /// The end is on disk: the node may forget it. Earlier records tell nothing of that.
    pub(super) fn on_stored(&mut self, job: JobId, ended: bool, out: &mut Outbox<Effect>) {
        let Some(entry) = self.jobs.get_mut(&job).filter(|_| ended) else { return };
        entry.recorded = true;
        if matches!(entry.record.state, JobState::Ended { place: Some(_), .. }) {
            out.push(Effect::Acknowledge { task: entry.record.task });
        }
    }

    pub(super) fn on_cancel(
        &mut self,
        job: JobId,
        hard: bool,
        at: WallTime,
        out: &mut Outbox<Effect>,
    ) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let task = entry.record.task;
        match entry.record.state {
            JobState::Waiting { .. } => {
                entry.record.cancelled = true;
                out.push(Effect::Control(Message::Withdraw { task }));
                self.reject(job, Rejection::Cancelled, at, out);
            }
            JobState::Starting { .. } | JobState::Running { .. } => {
                if !std::mem::replace(&mut entry.record.cancelled, true) {
                    out.push(Effect::Store(Box::new(entry.record.clone())));
                    out.push(Effect::Changed(job));
                }
                out.push(Effect::Stop { task, now: hard });
            }
            JobState::Ended { .. } | JobState::Rejected { .. } => {}
        }
    }

    pub(super) fn on_node_up(&mut self, node: NodeId, now: Instant, out: &mut Outbox<Effect>) {
        if self.controller.is_some_and(|reign| reign.controller == node) {
            // It may have taken this home for dead, and dropped what waits here.
            self.present(now, out);
        }
        let lost: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, entry)| entry.due.is_some() && entry.waits_for(node))
            .map(|(job, _)| *job)
            .collect();
        for job in lost {
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.tries = 0;
            }
            self.attach(job, now, out);
        }
    }
}

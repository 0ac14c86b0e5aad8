//! What this home asks the controller for: all that waits, whenever another controller is followed,
//! and again until it is answered.

use super::{ASK_AGAIN, ASK_STILL, Effect, Entry, Jobs, growing, is_unanswered};
use crate::core::control::{Message, PRESENT_ASKS_MAX};
use crate::core::id::{JobId, Reign};
use crate::core::job::JobState;
use crate::core::outbox::Outbox;
use crate::core::request::WaitReason;
use crate::core::time::Instant;

impl Jobs {
    pub(super) fn on_controller(
        &mut self,
        reign: Option<Reign>,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        self.controller = reign;
        for job in self.waiting() {
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            entry.tries = 0;
            entry.record.state = JobState::Waiting { reason: WaitReason::NoController };
            out.push(Effect::Changed(job));
            if reign.is_none() {
                self.set_due(job, None);
            }
        }
        self.present(now, out);
    }

    fn waiting(&self) -> Vec<JobId> {
        let waits = |entry: &Entry| matches!(entry.record.state, JobState::Waiting { .. });
        self.jobs.iter().filter(|(_, entry)| waits(entry)).map(|(job, _)| *job).collect()
    }

    /// Asks the controller for all that waits here.
    pub(super) fn present(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        if self.controller.is_none() {
            return;
        }
        let mut asks = Vec::new();
        for job in self.waiting() {
            if asks.len() >= PRESENT_ASKS_MAX {
                self.ask(job, now, out);
            } else if let Some(entry) = self.jobs.get_mut(&job) {
                asks.push(entry.ask());
                self.set_due(job, Some(now + ASK_AGAIN));
            }
        }
        out.push(Effect::Present(asks));
    }

    /// Asks the controller for a waiting job, and sees to it that it is asked again.
    pub(super) fn ask(&mut self, job: JobId, now: Instant, out: &mut Outbox<Effect>) {
        let controller = self.controller;
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if !matches!(entry.record.state, JobState::Waiting { .. }) {
            return;
        }
        if controller.is_none() {
            return;
        }
        let answered = !is_unanswered(&entry.record.state);
        out.push(Effect::Control(Message::Ask(entry.ask())));
        let wait = if answered { ASK_STILL } else { growing(ASK_AGAIN, entry.tries, ASK_STILL) };
        entry.tries = entry.tries.saturating_add(1);
        self.set_due(job, Some(now + wait));
    }
}

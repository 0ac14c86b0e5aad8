//! What a node does with a stream that a home opens: it leases, refuses, or goes on with a task.

use gpuvine::core::grant::{Grant, Refusal};
use gpuvine::core::id::NodeId;
use gpuvine::core::ledger::{Effect, Input, LeaseRecord, Offer};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::signed::Signed;
use gpuvine::core::task::TaskId;
use gpuvine::core::time::WallTime;

use super::{Host, Turn, broken, cannot_start};
use crate::exhaustive::leasing::note::{Answer, Note, Stream};
use crate::exhaustive::leasing::sabotage::Sabotage;
use crate::exhaustive::leasing::sights;
use crate::sim::invariants::Violation;

impl Host {
    /// A grant is presented by `home`, which may be another than it names.
    pub(in crate::exhaustive::leasing) fn offer(
        &mut self,
        home: NodeId,
        stream: Stream,
        grant: &Signed<Grant>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Violation> {
        let offer = Offer {
            offer: stream.offer(),
            from: home,
            may_submit: true,
            grant: grant.clone(),
            owner: String::new(),
            name: String::new(),
            follows: self.follows.map(|at| turn.cast.reigns[usize::from(at)]),
            at: WallTime(0),
        };
        let mut out = Outbox::new();
        self.ledger.handle(Input::Offer(Box::new(offer)), &mut out);
        while let Some(effect) = out.pop() {
            match effect {
                Effect::Accept { offer, lease, .. } => {
                    self.accept(Stream::of(offer), lease, grant, home, turn)?;
                }
                Effect::Changed => {}
                Effect::Refuse { offer, refusal } => {
                    self.refuse(Stream::of(offer), refusal, grant, home, turn)?;
                }
                Effect::Resume { offer, task } => self.resume(Stream::of(offer), task, turn),
            }
        }
        Ok(())
    }

    fn accept(
        &mut self,
        stream: Stream,
        lease: LeaseRecord,
        grant: &Signed<Grant>,
        home: NodeId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Violation> {
        let (value, task) = (grant.value(), lease.task);
        let me = turn.cast.nodes[usize::from(self.number)];
        let shown = turn.cast.task(task);
        if value.node != me || value.home != home || lease.home != home {
            return broken("grant_used_once", format!("{shown} is leased to a thief"));
        }
        if (value.job, value.attempt) != (task.job, task.attempt) {
            return broken("grant_used_once", format!("{shown} is leased by another's grant"));
        }
        if !self.past.accepted.insert(task) {
            return broken("grant_used_once", format!("{shown} is accepted again"));
        }
        self.starting.insert(task, (lease, vec![(stream, Answer::Accepted)]));
        // If neither the daemon nor the start can fail, nobody sees when it begins.
        if turn.cast.limits.starts_at_once() {
            self.spawn(task, turn)?;
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        stream: Stream,
        refusal: Refusal,
        grant: &Signed<Grant>,
        home: NodeId,
        turn: &mut Turn<'_>,
    ) -> Result<(), Violation> {
        let value = grant.value();
        let task = TaskId { job: value.job, attempt: value.attempt };
        let ignored = match &refusal {
            Refusal::Taken { .. } => turn.cast.is(Sabotage::StartRefused),
            Refusal::OldAttempt { .. } => turn.cast.is(Sabotage::AgainStarts),
            Refusal::OtherHome | Refusal::OtherNode => turn.cast.is(Sabotage::StolenGrants),
            _ => false,
        };
        if ignored {
            let lease = LeaseRecord {
                task,
                gpus: value.gpus.clone(),
                home,
                owner: String::new(),
                name: String::new(),
                since: WallTime(0),
            };
            return self.accept(stream, lease, grant, home, turn);
        }
        turn.sights.see(match &refusal {
            Refusal::Taken { .. } => sights::TAKEN,
            Refusal::OldAttempt { .. } => sights::OLD_ATTEMPT,
            Refusal::OtherIncarnation => sights::OTHER_START,
            Refusal::OldTerm { .. } | Refusal::NotController => sights::RIVAL,
            Refusal::OtherHome | Refusal::OtherNode => sights::THIEF,
            _ => sights::ANYTHING,
        });
        turn.notes.push(self.answer(stream, task, Answer::Refused(refusal)));
        Ok(())
    }

    fn resume(&mut self, stream: Stream, task: TaskId, turn: &mut Turn<'_>) {
        turn.sights.see(sights::RESUMED);
        if let Some((_, waiting)) = self.starting.get_mut(&task) {
            waiting.push((stream, Answer::Accepted));
        } else if self.knows(task).is_some() {
            self.follow(stream, task, Answer::Accepted, turn);
        } else {
            turn.notes.push(self.answer(stream, task, Answer::Refused(cannot_start())));
        }
    }

    pub(super) fn attach(&mut self, stream: Stream, task: TaskId, turn: &mut Turn<'_>) {
        if !self.ledger.has(task) && !turn.cast.is(Sabotage::ForgetForswear) {
            self.tell(Input::Forswear { task });
        }
        if let Some((_, waiting)) = self.starting.get_mut(&task) {
            if !waiting.contains(&(stream, Answer::Attached)) {
                waiting.push((stream, Answer::Attached));
            }
            return;
        }
        let home = turn.cast.nodes[usize::from(stream.job)];
        let lie = turn.cast.is(Sabotage::DenyTasks);
        if self.knows(task) == Some(home) && !lie {
            self.follow(stream, task, Answer::Attached, turn);
        } else {
            turn.sights.see(sights::UNKNOWN);
            turn.notes.push(self.answer(stream, task, Answer::Unknown));
        }
    }

    /// The home of a task that runs here, or ended and is not acknowledged.
    fn knows(&self, task: TaskId) -> Option<NodeId> {
        let alive = self.processes.get(&task).map(|lease| lease.home);
        alive.or_else(|| self.endings.get(&task).map(|(home, _)| *home))
    }

    /// The stream has its answer, and the task's end follows on it.
    pub(super) fn follow(
        &mut self,
        stream: Stream,
        task: TaskId,
        answer: Answer,
        turn: &mut Turn<'_>,
    ) {
        turn.notes.push(self.answer(stream, task, answer));
        if let Some((_, outcome)) = self.endings.get(&task) {
            turn.notes.push(self.answer(stream, task, Answer::Ended(outcome.clone())));
        } else {
            self.following.insert((task, stream));
            if turn.cast.is(Sabotage::EndEarly) {
                let outcome = turn.cast.outcome(usize::from(self.number), task);
                turn.notes.push(self.answer(stream, task, Answer::Ended(outcome)));
            }
        }
    }

    pub(super) fn answer(&self, stream: Stream, task: TaskId, answer: Answer) -> Note {
        Note::Answer { node: self.number, stream, task, answer }
    }
}

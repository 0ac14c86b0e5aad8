//! An outcome is recorded exactly once, and it is what happened: after the record of an end no
//! other is written, and an exit code is that of the task's command.

use std::collections::BTreeMap;

use gpuvine::core::id::JobId;
use gpuvine::core::job::JobState;
use gpuvine::core::task::{Outcome, TaskId};

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    recorded: BTreeMap<(usize, JobId), JobState>,
    happened: BTreeMap<TaskId, Outcome>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "outcome_recorded_once"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Boots { machine, old: true } => {
                self.recorded.retain(|(at, _), _| at != machine);
            }
            Fact::Gone { task, outcome } => {
                self.happened.insert(*task, (*outcome).clone());
            }
            Fact::Synced { machine, record } => {
                let job = record.spec.id;
                if let Some(before) = self.recorded.get(&(*machine, job)) {
                    if *before != record.state {
                        return Err(format!("job {job} was {before:?} and is {:?}", record.state));
                    }
                    return Ok(());
                }
                if let JobState::Ended { outcome, .. } = &record.state {
                    let says_how = !matches!(outcome, Outcome::Lost { .. });
                    let happened = self.happened.get(&record.task);
                    if says_how && happened != Some(outcome) {
                        return Err(format!("{} is {outcome:?}, it was {happened:?}", record.task));
                    }
                }
                if record.state.is_ended() {
                    self.recorded.insert((*machine, job), record.state.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

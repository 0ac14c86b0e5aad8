//! Rule 4 of the design: of a job at most one attempt is alive.

use std::collections::BTreeMap;

use gpuvine::core::id::JobId;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    alive: BTreeMap<JobId, (TaskId, usize)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_attempt_per_job"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Started { machine, task, .. } => {
                if let Some((other, at)) = self.alive.insert(task.job, (*task, *machine)) {
                    return Err(format!("{task} starts on n{machine} while {other} runs on n{at}"));
                }
            }
            Fact::Gone { task, .. } | Fact::Lost { task } => {
                self.alive.remove(&task.job);
            }
            _ => {}
        }
        Ok(())
    }
}

//! Rule 4 of the design: of a job at most one attempt is alive. Not promised while two machines
//! have the identity of the node that it was placed on.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::id::JobId;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    alive: BTreeMap<JobId, (TaskId, usize)>,
    /// Machines that share their identity with another: a home that asks one of them for its task
    /// may be answered by the other, who does not know it.
    twins: BTreeSet<usize>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_attempt_per_job"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Copied { original, copy } => self.twins.extend([*original, *copy]),
            Fact::Started { machine, task, .. } => {
                let before = self.alive.insert(task.job, (*task, *machine));
                if let Some((other, at)) = before.filter(|(_, at)| !self.twins.contains(at)) {
                    return Err(format!("{task} starts on n{machine} while {other} runs on n{at}"));
                }
            }
            Fact::Gone { task, .. } | Fact::Lost { task } => {
                let one_of_two = |_: &JobId, (alive, _): &mut (TaskId, usize)| alive == task;
                self.alive.extract_if(task.job..=task.job, one_of_two).for_each(drop);
            }
            _ => {}
        }
        Ok(())
    }
}

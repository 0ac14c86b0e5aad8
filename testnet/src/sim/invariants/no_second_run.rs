//! Rule 4 of the design: a job that has run is not run again, unless its node lost all trace of
//! it: by power loss, by an old disk, or because it kept the outcome for as long as it could.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::id::JobId;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    /// The jobs that have run, and where.
    ran: BTreeMap<JobId, (TaskId, usize)>,
    /// Outcomes that were given up, and where.
    given_up: BTreeSet<(usize, TaskId)>,
    /// Machines that share their identity with another: what one knows the other does not.
    twins: BTreeSet<usize>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "no_second_run"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Copied { original, copy } => self.twins.extend([*original, *copy]),
            Fact::Started { machine, task, .. } => {
                let before = self.ran.insert(task.job, (*task, *machine));
                if let Some((other, at)) = before.filter(|(_, at)| !self.twins.contains(at)) {
                    return Err(format!("{task} starts on n{machine}, and {other} ran on n{at}"));
                }
            }
            Fact::GivenUp { machine, task } => {
                self.given_up.insert((*machine, *task));
            }
            // What was given up is forgotten with the daemon.
            Fact::Boots { machine, .. } => {
                let given_up = &self.given_up;
                self.ran.retain(|_, (task, at)| {
                    at != machine || !given_up.contains(&(*machine, *task))
                });
            }
            Fact::PowerLost { machine } => self.ran.retain(|_, (_, at)| at != machine),
            _ => {}
        }
        Ok(())
    }
}

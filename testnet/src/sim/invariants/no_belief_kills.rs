//! Rule 3 of the design: nothing that a controller believes ends a task. Only its user does.

use std::collections::BTreeSet;

use gpuvine::core::id::JobId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    cancelled: BTreeSet<JobId>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "no_belief_kills"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Cancelled { job } => {
                self.cancelled.insert(*job);
            }
            Fact::Stopping { task } if !self.cancelled.contains(&task.job) => {
                return Err(format!("{task} is told to end, and nobody cancelled it"));
            }
            _ => {}
        }
        Ok(())
    }
}

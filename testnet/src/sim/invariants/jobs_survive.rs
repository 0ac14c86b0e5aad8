//! Rule 5 of the design: a job whose record was synced is known after every restart, until its home
//! forgets it as it may.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::id::JobId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    synced: BTreeMap<usize, BTreeSet<JobId>>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "jobs_survive"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Synced { machine, record } => {
                self.synced.entry(*machine).or_default().insert(record.spec.id);
            }
            Fact::Forgotten { machine, job } => {
                self.synced.entry(*machine).or_default().remove(job);
            }
            // The image knows less, by the fault and not by us.
            Fact::Boots { machine, old: true } => {
                self.synced.remove(machine);
            }
            Fact::Recalled { machine, node } => {
                let lost = self.synced.get(machine).into_iter().flatten();
                if let Some(job) = lost.copied().find(|job| node.jobs().find(*job).is_none()) {
                    return Err(format!("n{machine} no longer knows job {job}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

//! The queue's order is kept, over every failover: a place that was stamped never changes, and no
//! later request is served before an earlier one that wants the same.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::control::OrderKey;
use gpuvine::core::id::{JobId, NodeId, Term};
use gpuvine::core::request::Need;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    places: BTreeMap<(usize, JobId), OrderKey>,
    needs: BTreeMap<JobId, Need>,
    granted: BTreeSet<(Term, TaskId, NodeId)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "queue_keeps_order"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Boots { machine, old: true } => {
                self.places.retain(|(at, _), _| at != machine);
            }
            Fact::Submitted { job, need } => {
                self.needs.insert(*job, (*need).clone());
            }
            Fact::Synced { machine, record } => {
                let place = (*machine, record.spec.id);
                let before = self.places.get(&place).copied();
                if before.is_some() && before != record.key {
                    let (job, now) = (record.spec.id, record.key);
                    return Err(format!("job {job} had place {before:?} and has {now:?}"));
                }
                if let Some(key) = record.key {
                    self.places.insert(place, key);
                }
            }
            Fact::Granted { node, grant } => {
                let task = TaskId { job: grant.job, attempt: grant.attempt };
                if !self.granted.insert((grant.term, task, grant.node)) {
                    return Ok(());
                }
                let Some(need) = self.needs.get(&grant.job) else { return Ok(()) };
                let earlier = node.controller().queue().find(|((key, _), waiting)| {
                    *key < grant.key && waiting.ask.need == *need && waiting.ask.refused.is_empty()
                });
                if let Some(((key, before), _)) = earlier {
                    return Err(format!(
                        "{task} at {:?} is served before {before} at {key:?}",
                        grant.key
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

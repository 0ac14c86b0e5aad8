//! The queue's order is kept, over every failover: a place that was stamped never becomes a later
//! one, and no later request is served before an earlier one that wants the same.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::control::OrderKey;
use gpuvine::core::grant::Grant;
use gpuvine::core::id::{JobId, NodeId, Term};
use gpuvine::core::node::Node;
use gpuvine::core::request::Need;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    /// The places that homes have on their disks.
    places: BTreeMap<JobId, OrderKey>,
    homes: BTreeMap<JobId, usize>,
    needs: BTreeMap<JobId, Need>,
    granted: BTreeSet<(Term, TaskId, NodeId)>,
    /// Tasks that were accepted: a request for one that is still in a queue came late.
    accepted: BTreeSet<TaskId>,
    /// Tasks that were refused somewhere: they may not be given what was refused.
    refused: BTreeSet<TaskId>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "queue_keeps_order"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Boots { machine, old: true } => {
                self.places.retain(|job, _| self.homes.get(job) != Some(machine));
            }
            Fact::Accepted { lease, .. } => {
                self.accepted.insert(lease.task);
            }
            Fact::Submitted { job, need } => {
                self.needs.insert(*job, (*need).clone());
            }
            Fact::Synced { machine, record } => {
                let job = record.spec.id;
                if self.homes.entry(job).or_insert(*machine) != machine {
                    // A copy of its home, which never places it again.
                    return Ok(());
                }
                let before = self.places.get(&job).copied();
                if before.is_some_and(|before| record.key.is_none_or(|key| key > before)) {
                    let now = record.key;
                    return Err(format!("job {job} had place {before:?} and has {now:?}"));
                }
                if let Some(key) = record.key {
                    self.places.insert(job, key);
                }
            }
            Fact::Turn { node, .. } => {
                let refused = node.controller().queue().filter(|(_, w)| !w.ask.refused.is_empty());
                self.refused.extend(refused.map(|((_, task), _)| *task));
                for grant in node.controller().grants() {
                    self.see_grant(node, grant)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Rule {
    /// A controller has decided: nobody who is still in its queue came before.
    fn see_grant(&mut self, node: &Node, grant: &Grant) -> Result<(), String> {
        let task = TaskId { job: grant.job, attempt: grant.attempt };
        if !self.granted.insert((grant.term, task, grant.node)) {
            return Ok(());
        }
        let Some(need) = self.needs.get(&grant.job) else { return Ok(()) };
        let place =
            |job: &JobId, key: OrderKey| self.places.get(job).map_or(key, |at| key.min(*at));
        let mine = place(&grant.job, grant.key);
        let earlier = node.controller().queue().find(|((key, task), waiting)| {
            place(&task.job, *key) < mine
                && waiting.ask.need == *need
                && !self.accepted.contains(task)
                && !self.refused.contains(task)
                // Its home had not heard yet that it has an earlier place.
                && waiting.ask.key.is_some()
        });
        if let Some(((key, before), _)) = earlier {
            let theirs = place(&before.job, *key);
            return Err(format!("{task} at {mine:?} is served before {before} at {theirs:?}"));
        }
        Ok(())
    }
}

//! A grant is used at most once, by the home and on the node that it names; an attempt is accepted
//! at most once, in any start of any node.

use std::collections::BTreeMap;

use gpuvine::core::id::NodeId;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    accepted: BTreeMap<TaskId, NodeId>,
    /// A machine lost what it knew: what it is asked again it may do again.
    old: bool,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "grant_used_once"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Boots { old: true, .. } => self.old = true,
            Fact::Accepted { me, from, lease, grant } => {
                let value = grant.value();
                let task = lease.task;
                if value.node != *me {
                    return Err(format!("{task} is leased on {me:?}, meant for {:?}", value.node));
                }
                if from.is_some_and(|from| from != value.home) || lease.home != value.home {
                    return Err(format!("{task} is not presented by its home {:?}", value.home));
                }
                let named = (value.job, value.attempt);
                if named != (task.job, task.attempt) {
                    return Err(format!("{task} is leased by a grant for {named:?}"));
                }
                if let Some(before) = self.accepted.insert(task, *me).filter(|_| !self.old) {
                    return Err(format!("{task} is accepted on {me:?}, after {before:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

//! What a node still knows of tasks whose outcome it has given up: that they were here. A home that
//! comes back for one after all must not hear that it never was, for it would run it again.

use super::Ledger;
use crate::core::id::NodeId;
use crate::core::task::TaskId;

/// Tasks whose outcome was given up that are remembered; the oldest are forgotten.
const GIVEN_UP_MAX: usize = 4_096;

/// What a ledger can say of a task for which its home comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It was here, and how it ended is not known any more.
    GivenUp,
    /// It has a lease.
    Leased,
    /// None. It may have ended, or never have been here.
    Nothing,
}

impl Ledger {
    /// What there is of this home's task.
    pub fn trace(&self, task: TaskId, home: NodeId) -> Trace {
        if self.has(task) {
            Trace::Leased
        } else if self.given_up.contains(&(task, home)) {
            Trace::GivenUp
        } else {
            Trace::Nothing
        }
    }

    pub(super) fn on_given_up(&mut self, task: TaskId, home: NodeId) {
        self.given_up.push_back((task, home));
        if self.given_up.len() > GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
    }

    /// Its home knows that it is lost.
    pub(super) fn on_acknowledged(&mut self, task: TaskId) {
        self.given_up.retain(|(given_up, _)| *given_up != task);
    }
}

//! What must always be true, whatever goes wrong: one file for each rule.
//!
//! A checker sees [`Fact`]s, which are what really happened, and not what any core believes. Each
//! is proven in [`super::sabotage`]'s tests: the rule is broken on purpose, and the run fails.

mod directory_only_newer;
mod grant_used_once;
mod jobs_survive;
mod no_belief_kills;
mod no_second_run;
mod one_attempt_per_job;
mod one_lease_per_gpu;
mod outcome_recorded_once;
mod queue_keeps_order;
mod terms_only_grow;
mod within_limits;

use gpuvine::core::grant::Grant;
use gpuvine::core::id::{GpuUuid, JobId, NodeId};
use gpuvine::core::job::JobRecord;
use gpuvine::core::ledger::LeaseRecord;
use gpuvine::core::node::Node;
use gpuvine::core::request::Need;
use gpuvine::core::signed::Signed;
use gpuvine::core::task::{Outcome, TaskId};

/// Something that really happened.
#[derive(Debug)]
pub(crate) enum Fact<'a> {
    /// A ledger accepted an offer.
    Accepted { me: NodeId, from: Option<NodeId>, lease: &'a LeaseRecord, grant: &'a Signed<Grant> },
    /// A daemon starts, perhaps from an old image of its disk.
    Boots { machine: usize, old: bool },
    /// A user cancels.
    Cancelled { job: JobId },
    /// A machine's disk, and with it its identity, is copied to another.
    Copied { original: usize, copy: usize },
    /// A job's record is gone from a disk, as its home wants.
    Forgotten { machine: usize, job: JobId },
    /// A node does not keep the outcome of a task any longer, which its home has not heard.
    GivenUp { machine: usize, task: TaskId },
    /// All processes of a task have ended.
    Gone { task: TaskId, outcome: &'a Outcome },
    /// A task's machine lost power.
    Lost { task: TaskId },
    /// A machine lost power, and what it had not synced.
    PowerLost { machine: usize },
    /// A daemon has read its jobs.
    Recalled { machine: usize, node: &'a Node },
    /// A task's process runs.
    Started { machine: usize, task: TaskId, gpus: &'a [GpuUuid] },
    /// A task is told to end.
    Stopping { task: TaskId },
    /// A user submits a job.
    Submitted { job: JobId, need: &'a Need },
    /// A record of a job is on a disk.
    Synced { machine: usize, record: &'a JobRecord },
    /// From now on no core has room for anything: a sabotage.
    NoRoom,
    /// A core has handled an input.
    Turn { machine: usize, life: u32, node: &'a Node },
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: the name of the checker's file.
    pub rule: &'static str,
    /// How.
    pub what: String,
}

/// One rule.
pub(crate) trait Invariant: std::fmt::Debug {
    /// Its name: that of its file.
    fn name(&self) -> &'static str;

    /// Looks at what happened.
    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String>;
}

/// All rules.
#[derive(Debug)]
pub(crate) struct Checks {
    rules: Vec<Box<dyn Invariant>>,
    violation: Option<Violation>,
}

impl Checks {
    pub(crate) fn new() -> Self {
        let rules: Vec<Box<dyn Invariant>> = vec![
            Box::new(directory_only_newer::Rule::default()),
            Box::new(grant_used_once::Rule::default()),
            Box::new(jobs_survive::Rule::default()),
            Box::new(no_belief_kills::Rule::default()),
            // The worse of the two first.
            Box::new(one_attempt_per_job::Rule::default()),
            Box::new(no_second_run::Rule::default()),
            Box::new(one_lease_per_gpu::Rule::default()),
            Box::new(outcome_recorded_once::Rule::default()),
            Box::new(queue_keeps_order::Rule::default()),
            Box::new(terms_only_grow::Rule::default()),
            Box::new(within_limits::Rule::default()),
        ];
        Self { rules, violation: None }
    }

    /// Shows a fact to every rule; the first violation stays.
    pub(crate) fn see(&mut self, fact: &Fact<'_>) {
        if self.violation.is_some() {
            return;
        }
        for rule in &mut self.rules {
            if let Err(what) = rule.see(fact) {
                self.violation = Some(Violation { rule: rule.name(), what });
                return;
            }
        }
    }

    pub(crate) fn fail(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
}

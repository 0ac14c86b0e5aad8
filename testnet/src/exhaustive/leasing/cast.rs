//! Who takes part in the model of leases: two nodes, each with one GPU, each the home of one job,
//! each a controller. The three roles of a node fail apart from one another, which allows all that
//! a node does that fails as a whole, and more.

use std::collections::BTreeMap;

use gpuvine::core::id::{GpuUuid, Incarnation, JobId, NodeId, Reign, Term, Version};
use gpuvine::core::job::JobSpec;
use gpuvine::core::report::{Gpu, GpuHealth, NodeState, Report};
use gpuvine::core::request::Need;
use gpuvine::core::signed::Key;
use gpuvine::core::task::{Command, Outcome, TaskId};
use gpuvine::core::time::WallTime;

use super::limits::Limits;
use super::sabotage::Sabotage;

/// Nodes, and with them GPUs, jobs and controllers.
pub(super) const NODES: usize = 2;

/// What never changes in a model.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) keys: [Key; NODES],
    pub(super) nodes: [NodeId; NODES],
    pub(super) gpus: [GpuUuid; NODES],
    pub(super) jobs: [JobId; NODES],
    /// The reign of each node as controller; that of the second is the higher one.
    pub(super) reigns: [Reign; NODES],
    pub(super) limits: Limits,
    pub(super) sabotage: Option<Sabotage>,
    /// The only rule over all parts that is kept, to see that it is broken and not only others.
    pub(super) watched: Option<&'static str>,
}

impl Cast {
    pub(super) fn new(limits: Limits, sabotage: Option<Sabotage>) -> Self {
        let mut keys = [1, 2].map(|seed| Key::from_seed(&[seed; 32]));
        // Of two reigns of one term that with the higher id wins.
        keys.sort_by_key(Key::id);
        let nodes = keys.each_ref().map(Key::id);
        let terms = if limits.one_term { [1, 1] } else { [1, 2] };
        let reign = |at: usize| Reign { term: Term(terms[at]), controller: nodes[at] };
        Self {
            gpus: ["gpu-0", "gpu-1"].map(|name| GpuUuid(name.into())),
            jobs: [0, 1].map(JobId::from_bits),
            reigns: [reign(0), reign(1)],
            keys,
            nodes,
            limits,
            sabotage,
            watched: None,
        }
    }

    /// Which node this is.
    pub(super) fn node(&self, id: NodeId) -> usize {
        usize::from(id == self.nodes[1])
    }

    /// Which job this is.
    pub(super) fn job(&self, id: JobId) -> usize {
        usize::from(id == self.jobs[1])
    }

    /// A task, for people.
    pub(super) fn task(&self, task: TaskId) -> String {
        format!("{}.{}", self.job(task.job), task.attempt)
    }

    pub(super) fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Whether a rule over all parts is kept.
    pub(super) fn watches(&self, rule: &str) -> bool {
        self.watched.is_none_or(|watched| watched == rule)
    }

    /// What the user of a job submits.
    pub(super) fn spec(&self, job: usize) -> JobSpec {
        JobSpec {
            id: self.jobs[job],
            owner: "user".into(),
            name: "job".into(),
            need: Need { gpus: 1, ..Need::default() },
            command: Command::default(),
            submitted: WallTime(0),
        }
    }

    /// The GPU of a node, as its driver shows it.
    pub(super) fn gpu(&self, node: usize) -> Gpu {
        Gpu {
            uuid: self.gpus[node].clone(),
            index: 0,
            model: "simulated".into(),
            memory_bytes: 1,
            memory_free_bytes: 1,
            utilization: None,
            health: GpuHealth::Usable,
            seq: gpuvine::core::id::LeaseSeq(0),
            lease: None,
        }
    }

    /// How a task ends on a node: each in its own way, so that none passes for another.
    pub(super) fn outcome(&self, node: usize, task: TaskId) -> Outcome {
        let code = 100 * (node + 1) + 10 * self.job(task.job);
        Outcome::Exited { code: code as i32 + task.attempt.0 as i32 }
    }
}

/// What a node says of itself. Its version tells nothing to a controller, which is told reports in
/// the order in which they were made.
pub(super) fn report(node: NodeId, incarnation: Incarnation, gpus: Vec<Gpu>) -> Report {
    Report {
        node,
        incarnation,
        version: Version(1),
        name: String::new(),
        labels: BTreeMap::new(),
        priority: 0,
        seniority: 0,
        state: NodeState::Serving,
        gpus,
        gpus_note: None,
        cpus: 1,
        memory_bytes: 0,
        memory_free_bytes: 0,
        software: String::new(),
        addresses: Vec::new(),
        proof: Vec::new(),
        gpuless_tasks: Vec::new(),
    }
}

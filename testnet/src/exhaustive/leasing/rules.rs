//! What must hold in every state of the model of leases, over both nodes and both homes.

use gpuvine::core::job::{JobState, Place};
use gpuvine::core::task::{Outcome, TaskId};

use super::cast::{Cast, NODES};
use super::home::Home;
use super::host::Host;
use super::sights;
use crate::exhaustive::checker::Sights;
use crate::sim::invariants::Violation;

/// What the rules look at in a node.
#[derive(Clone, Debug)]
pub(super) struct HostFacts {
    /// Tasks that are alive or about to be, of each job.
    alive: [u8; NODES],
    /// Tasks that ever began, of each job.
    began: [u8; NODES],
    /// Whether tasks of each job run.
    runs: [bool; NODES],
    accepted: Vec<TaskId>,
    ended: Vec<TaskId>,
    leased: bool,
    later: bool,
}

impl HostFacts {
    pub(super) fn new(host: &Host, cast: &Cast) -> Self {
        let mut facts = Self {
            alive: [0; NODES],
            began: [0; NODES],
            runs: [false; NODES],
            accepted: host.past.accepted.iter().copied().collect(),
            ended: host.past.ended.iter().copied().collect(),
            leased: host.is_leased(),
            later: host.past.began.iter().any(|task| task.attempt.0 > 1),
        };
        host.alive().for_each(|task| facts.alive[cast.job(task.job)] += 1);
        host.runs().for_each(|task| facts.runs[cast.job(task.job)] = true);
        host.past.began.iter().for_each(|task| facts.began[cast.job(task.job)] += 1);
        facts
    }
}

/// What the rules look at in a home: how its job ended, as its disk has it.
#[derive(Clone, Debug)]
pub(super) enum HomeFacts {
    /// It has not.
    Open,
    /// It ran, and its task is over.
    Ended { task: TaskId, node: usize, outcome: Outcome },
    /// Nobody can say.
    Lost,
    /// It never ran.
    Rejected,
}

impl HomeFacts {
    pub(super) fn new(home: &Home, cast: &Cast) -> Self {
        let Some(record) = home.disk() else { return Self::Open };
        match &record.state {
            JobState::Ended { place: Some(Place { node, .. }), outcome, .. } => {
                Self::Ended { task: record.task, node: cast.node(*node), outcome: outcome.clone() }
            }
            JobState::Ended { place: None, .. } => Self::Lost,
            JobState::Rejected { .. } => Self::Rejected,
            JobState::Running { .. } | JobState::Starting { .. } | JobState::Waiting { .. } => {
                Self::Open
            }
        }
    }

    fn succeeded(&self) -> bool {
        matches!(self, Self::Ended { outcome: Outcome::Exited { .. }, .. })
    }
}

/// Looks at both nodes and both homes.
pub(super) fn look(
    hosts: [&HostFacts; NODES],
    homes: [&HomeFacts; NODES],
    cast: &Cast,
) -> Result<Sights, Violation> {
    let mut broken = Vec::new();
    let mut breaks = |rule, what| broken.push(Violation { rule, what });
    for (job, home) in homes.iter().enumerate() {
        let sum = |of: fn(&HostFacts) -> [u8; NODES]| -> u8 {
            hosts.iter().map(|host| of(host)[job]).sum()
        };
        let (alive, began) = (sum(|host| host.alive), sum(|host| host.began));
        if alive > 1 {
            breaks("one_attempt_per_job", format!("{alive} tasks of job {job} are alive"));
        }
        if began > 1 {
            breaks("started_once", format!("{began} tasks of job {job} began"));
        }
        let runs = hosts.iter().any(|host| host.runs[job]);
        if runs && matches!(home, HomeFacts::Ended { .. }) {
            breaks(
                "ended_is_over",
                format!("job {job} has ended by its record, and its task runs"),
            );
        }
        if began > 0 && matches!(home, HomeFacts::Rejected) {
            let what = format!("job {job} never ran by its record, and its task began");
            breaks("rejected_never_ran", what);
        }
        if let HomeFacts::Ended { task, node, outcome } = home
            && let Err((rule, what)) = is_true(*task, *node, outcome, hosts[*node], cast)
        {
            breaks(rule, what);
        }
    }
    if let Some(task) = hosts[0].accepted.iter().find(|task| hosts[1].accepted.contains(task)) {
        breaks("grant_used_once", format!("{} is accepted on both nodes", cast.task(*task)));
    }
    if let Some(violation) = broken.into_iter().find(|it| cast.watches(it.rule)) {
        return Err(violation);
    }
    let mut seen = Sights::default();
    let sights = [
        (homes.iter().all(|home| home.succeeded()), sights::BOTH_SUCCEED),
        (hosts.iter().all(|host| host.leased), sights::BOTH_LEASED),
        (hosts.iter().any(|host| host.later), sights::LATER_ATTEMPT),
    ];
    sights.iter().filter(|(is, _)| *is).for_each(|(_, bit)| seen.see(*bit));
    Ok(seen)
}

/// Whether an outcome that was recorded is what happened.
fn is_true(
    task: TaskId,
    node: usize,
    outcome: &Outcome,
    host: &HostFacts,
    cast: &Cast,
) -> Result<(), (&'static str, String)> {
    let (ended, shown) = (host.ended.contains(&task), cast.task(task));
    match outcome {
        Outcome::Exited { .. } if ended && *outcome == cast.outcome(node, task) => Ok(()),
        // Its machine was restarted; the node's own word for it, or its silence.
        Outcome::Lost { .. } if !ended => Ok(()),
        Outcome::Lost { why } => {
            let what = format!("{shown} ended on node {node}, and is recorded as lost: {why}");
            Err(("outcome_kept", what))
        }
        Outcome::Exited { .. } | Outcome::Failed { .. } | Outcome::Signaled { .. } => {
            let what = format!("{shown} on node {node} is recorded as {outcome:?}: it was not so");
            Err(("outcome_recorded_once", what))
        }
    }
}

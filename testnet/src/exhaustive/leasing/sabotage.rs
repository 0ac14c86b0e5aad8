//! Ways to break what the hands of a daemon owe the machines, or the machines the user, each to
//! prove that a rule sees it.

/// A break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A home is told that an outcome is stored before it is.
    AcknowledgeEarly,
    /// A node starts a task again whose attempt it knows.
    AgainStarts,
    /// A node says that it does not know a task that runs there.
    DenyTasks,
    /// An outcome is changed on its way.
    FalseOutcomes,
    /// A node that does not know a task says so, and does not forswear it.
    ForgetForswear,
    /// A daemon that starts again does not tell its ledger of the tasks that are alive.
    ForgetLeases,
    /// A daemon that starts again does not look for outcomes that nobody has acknowledged.
    ForgetOutcomes,
    /// A daemon begins with the number of the start before.
    SameStart,
    /// A node starts a task although its ledger says that the GPU is taken.
    StartRefused,
    /// A node starts the task of a grant that is meant for another, or comes from another home.
    StolenGrants,
    /// The disk of a home goes back to the record of before the end.
    ReviveJobs,
    /// A node says that a task has ended that goes on.
    EndEarly,
}

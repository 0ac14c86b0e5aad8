//! Ways to break what gpuvine promises, each to prove that a checker sees it.

/// A break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A ledger leases a GPU that is taken.
    IgnoreTaken,
    /// A ledger accepts an attempt twice.
    IgnoreAttempts,
    /// A node denies a task that runs there.
    DenyTasks,
    /// Disks lose the records of jobs that were synced.
    ForgetJobs,
    /// Disks lose terms that were said to be stored.
    ForgetTerms,
    /// A disk goes back to the record of before a job's end.
    ReviveJobs,
    /// A node that follows another controller ends its tasks.
    ControllersKill,
    /// Homes forget the places that they were given in the queue.
    ForgetPlaces,
    /// Nobody tells the ledger that a task is gone.
    KeepLeases,
    /// A node forgets what it knew, and does not say that it was restarted.
    Amnesia,
    /// Timers never go off.
    NoTimers,
    /// An outcome is changed on its way.
    FalseOutcomes,
    /// A grant is presented by somebody else.
    StolenGrants,
}

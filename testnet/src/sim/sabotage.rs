//! Ways to break what gpuvine promises, each to prove that a checker sees it.

/// A break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A ledger leases a GPU that is taken.
    IgnoreTaken,
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
    /// Homes forget the places that they were given in the queue, and claim others.
    ForgetPlaces,
    /// Everything that arrives arrives again, without end.
    Echo,
    /// The limits are so tight that every core breaks them.
    NoRoom,
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
    /// Once the mesh has come to rest, homes present no grants.
    NoOffers,
    /// An assertion of the core fails.
    Panics,
    /// A node does not remember what has ended.
    ForgetOutcomes,
    /// A home keeps its stream although the job was sent elsewhere.
    KeepStreams,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::options::Wishes;
    use crate::sim::sweep::attempt;

    /// Seeds that are tried until one of them shows the break.
    const SEEDS: u64 = 200;

    /// Plays a break until the rule is broken that should be.
    fn caught(sabotage: Sabotage, rule: &str, faults: &str) {
        let wishes = Wishes { faults: Some(faults.parse().unwrap()), ..Wishes::default() };
        let mut broken = Vec::new();
        for seed in 0..SEEDS {
            broken.extend(attempt(seed, &wishes, Some(sabotage)).err().map(|broken| broken.rule));
            if broken.contains(&rule) {
                return;
            }
        }
        panic!("{sabotage:?} breaks {broken:?} in {SEEDS} runs, and not {rule}");
    }

    #[test]
    fn two_tasks_on_one_gpu_are_seen() {
        caught(Sabotage::IgnoreTaken, "one_lease_per_gpu", "split,freeze,isolate");
    }

    #[test]
    fn a_grant_in_other_hands_is_seen() {
        caught(Sabotage::StolenGrants, "grant_used_once", "none");
    }

    #[test]
    fn a_second_living_attempt_is_seen() {
        caught(Sabotage::DenyTasks, "one_attempt_per_job", "reset,slow");
    }

    #[test]
    fn a_job_that_is_lost_from_the_disk_is_seen() {
        caught(Sabotage::ForgetJobs, "jobs_survive", "kill,power");
    }

    #[test]
    fn a_term_that_is_claimed_twice_is_seen() {
        caught(Sabotage::ForgetTerms, "terms_only_grow", "kill,power,isolate");
    }

    #[test]
    fn a_job_that_changes_after_its_end_is_seen() {
        caught(Sabotage::ReviveJobs, "outcome_recorded_once", "kill");
    }

    #[test]
    fn an_outcome_that_did_not_happen_is_seen() {
        caught(Sabotage::FalseOutcomes, "outcome_recorded_once", "none");
    }

    #[test]
    fn a_controller_that_ends_tasks_is_seen() {
        caught(Sabotage::ControllersKill, "no_belief_kills", "freeze,isolate");
    }

    #[test]
    fn places_that_are_forgotten_are_seen() {
        caught(Sabotage::ForgetPlaces, "queue_keeps_order", "freeze,isolate,reset");
    }

    #[test]
    fn a_directory_that_goes_back_is_seen() {
        caught(Sabotage::Amnesia, "directory_only_newer", "reset");
    }

    #[test]
    fn what_grows_without_bound_is_seen() {
        caught(Sabotage::NoRoom, "within_limits", "none");
    }

    #[test]
    fn gpus_that_nobody_gives_back_are_seen() {
        caught(Sabotage::KeepLeases, "comes_to_rest", "none");
    }

    #[test]
    fn a_mesh_that_stands_still_is_seen() {
        caught(Sabotage::NoTimers, "comes_to_rest", "kill,reset");
    }

    #[test]
    fn a_mesh_at_rest_that_does_no_work_is_seen() {
        caught(Sabotage::NoOffers, "works_again", "none");
    }

    #[test]
    fn a_core_that_panics_is_seen() {
        caught(Sabotage::Panics, "nothing_panics", "none");
    }

    #[test]
    fn a_job_that_is_run_again_is_seen() {
        caught(Sabotage::ForgetOutcomes, "no_second_run", "reset,isolate");
    }

    #[test]
    fn running_in_circles_is_seen() {
        caught(Sabotage::Echo, "nobody_runs_in_circles", "none");
    }
}

//! The rules hold, all that should happen does, and each rule can be broken.

use super::*;
use crate::exhaustive::checker::{Model as _, search};
use crate::exhaustive::models::NETWORK;

/// The rules hold within these limits, and what should happen does.
fn safe(limits: Limits) -> u64 {
    let mut model = Leasing::new(limits, None);
    let found = search(&mut model, &mut |_, _| {});
    if let Some(broken) = found.broken {
        panic!("\n{broken}");
    }
    assert_eq!(model.missing(found.sights), Vec::<&str>::new(), "{limits}");
    found.unique
}

/// A break is seen by a rule, and the path to it is shown.
fn caught(sabotage: Sabotage, rule: &'static str, limits: Limits) {
    let mut model = Leasing::new(limits, Some(sabotage)).watching(rule);
    let found = search(&mut model, &mut |_, _| {});
    let Some(broken) = found.broken else { panic!("{sabotage:?} breaks nothing") };
    assert_eq!(broken.violation.rule, rule, "\n{broken}");
    assert!(broken.path.len() > 1, "\n{broken}");
}

/// An offer that is lost, and a second stream to ask for it.
const LOST_OFFER: Limits = Limits { streams: 2, timers: 1, ..NETWORK };

#[test]
fn jobs_run_under_rival_controllers() {
    assert!(safe(Limits { rivals: true, ..NETWORK }) > 10_000);
    assert!(safe(Limits { rivals: true, one_term: true, ..NETWORK }) > 10_000);
}

#[test]
fn a_lost_answer_starts_nothing_twice() {
    safe(LOST_OFFER);
}

#[test]
fn two_tasks_on_one_gpu_are_seen() {
    caught(Sabotage::StartRefused, "one_lease_per_gpu", NETWORK);
}

#[test]
fn a_second_living_attempt_is_seen() {
    let limits = Limits { attempts: 2, streams: 3, ..LOST_OFFER };
    caught(Sabotage::DenyTasks, "one_attempt_per_job", limits);
}

#[test]
fn a_second_start_is_seen() {
    let limits = Limits { attempts: 2, streams: 3, ..LOST_OFFER };
    caught(Sabotage::ForgetForswear, "started_once", limits);
}

#[test]
fn a_grant_in_other_hands_is_seen() {
    caught(Sabotage::StolenGrants, "grant_used_once", NETWORK);
}

#[test]
fn an_outcome_that_did_not_happen_is_seen() {
    caught(Sabotage::FalseOutcomes, "outcome_recorded_once", NETWORK);
}

#[test]
fn a_job_that_changes_after_its_end_is_seen() {
    let limits = Limits { home_crashes: 1, streams: 2, ..NETWORK };
    caught(Sabotage::ReviveJobs, "outcome_recorded_once", limits);
}

#[test]
fn an_outcome_that_its_node_forgets_is_seen() {
    let limits = Limits { crashes: 1, ..LOST_OFFER };
    caught(Sabotage::ForgetOutcomes, "outcome_kept", limits);
}

#[test]
fn an_acknowledgement_before_the_record_is_seen() {
    caught(Sabotage::AcknowledgeEarly, "recorded_before_acknowledged", NETWORK);
}

#[test]
fn an_end_that_is_none_is_seen() {
    caught(Sabotage::EndEarly, "ended_is_over", NETWORK);
}

#[test]
fn a_rejected_job_that_runs_is_seen() {
    let limits = Limits { cancels: 1, ..LOST_OFFER };
    caught(Sabotage::ForgetForswear, "rejected_never_ran", limits);
}

#[test]
fn a_task_without_a_lease_is_seen() {
    caught(Sabotage::AgainStarts, "lease_before_process", LOST_OFFER);
    caught(Sabotage::ForgetLeases, "lease_before_process", Limits { crashes: 1, ..NETWORK });
}

#[test]
fn a_lease_number_that_is_used_again_is_seen() {
    caught(Sabotage::SameStart, "lease_numbers_grow", Limits { crashes: 1, ..NETWORK });
}

//! The rules hold, all that should happen does, and each rule can be broken.

use super::*;
use crate::exhaustive::checker::search;

const SMALL: Limits = Limits { terms: 2, timers: 2, deaths: 1, crashes: 1, compares: 0 };

/// A break is seen by a rule, and the path to it is shown.
fn caught(sabotage: Sabotage, rule: &'static str) {
    let mut model = Electing::new(SMALL, Some(sabotage));
    let found = search(&mut model, &mut |_, _| {});
    let Some(broken) = found.broken else { panic!("{sabotage:?} breaks nothing") };
    assert_eq!(broken.violation.rule, rule, "\n{broken}");
}

#[test]
fn nobody_goes_back_and_no_term_is_claimed_twice() {
    let mut model = Electing::new(SMALL, None);
    let found = search(&mut model, &mut |_, _| {});
    if let Some(broken) = found.broken {
        panic!("\n{broken}");
    }
    assert_eq!(model.missing(found.sights), Vec::<&str>::new());
    assert!(found.unique > 10_000, "{}", found.unique);
}

#[test]
fn a_term_that_is_claimed_twice_is_seen() {
    caught(Sabotage::ForgetTerms, "claims_only_grow");
}

#[test]
fn a_claim_before_its_record_is_seen() {
    caught(Sabotage::SpeakFirst, "stored_before_claimed");
}

#[test]
fn a_node_that_goes_back_is_seen() {
    caught(Sabotage::Amnesia, "reigns_only_grow");
}

#[test]
fn a_claim_that_is_not_followed_is_seen() {
    caught(Sabotage::Deaf, "the_highest_is_followed");
}

#[test]
fn two_controllers_of_one_reign_are_seen() {
    caught(Sabotage::SameKey, "one_controller_per_reign");
}

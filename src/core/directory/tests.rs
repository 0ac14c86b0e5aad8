//! The laws of a directory: it merges like a set of maxima, and its digest tells equality.

use proptest::prelude::*;

use super::*;
use crate::core::report::TEXT_MAX;
use crate::core::report::testing::{gpu, report};
use crate::core::signed::Key;

fn signed(number: u8, incarnation: u64, version: u64) -> Signed<Report> {
    let mut report = report(number, Vec::new());
    report.incarnation = Incarnation(incarnation);
    report.version = Version(version);
    Key::from_seed(&[number; 32]).sign(report)
}

fn directory(reports: &[Signed<Report>]) -> Directory {
    let mut directory = Directory::new();
    for report in reports {
        directory.insert(report.clone(), Instant::ZERO);
    }
    directory
}

#[test]
fn a_report_about_another_node_is_dropped() {
    let forged = Key::from_seed(&[2; 32]).sign(report(1, Vec::new()));
    assert_eq!(Directory::new().insert(forged, Instant::ZERO), Inserted::Invalid);
}

#[test]
fn a_report_that_floods_is_dropped() {
    let mut huge = report(1, Vec::new());
    huge.name = "x".repeat(TEXT_MAX + 1);
    let huge = Key::from_seed(&[1; 32]).sign(huge);
    assert_eq!(Directory::new().insert(huge, Instant::ZERO), Inserted::Invalid);
}

#[test]
fn a_report_that_names_a_gpu_twice_is_dropped() {
    let twice = report(1, vec![gpu("a", "A100", 80), gpu("a", "A100", 80)]);
    let twice = Key::from_seed(&[1; 32]).sign(twice);
    assert_eq!(Directory::new().insert(twice, Instant::ZERO), Inserted::Invalid);
}

#[test]
fn an_old_report_replayed_changes_nothing() {
    let mut directory = directory(&[signed(1, 2, 1)]);
    assert_eq!(directory.insert(signed(1, 1, 99), Instant::ZERO), Inserted::Known);
    assert_eq!(directory.insert(signed(1, 2, 1), Instant::ZERO), Inserted::Known);
    assert_eq!(directory.insert(signed(1, 2, 2), Instant::ZERO), Inserted::Newer);
}

#[test]
fn the_dead_are_remembered_for_a_day() {
    let mut directory = directory(&[signed(1, 1, 1), signed(2, 1, 1)]);
    directory.mark(signed(2, 1, 1).signer(), true, Instant::ZERO);
    assert!(directory.forget(Instant::ZERO + REMEMBER).is_empty());
    let gone = directory.forget(Instant::ZERO + REMEMBER + Duration::from_secs(1));
    assert_eq!(gone, [signed(1, 1, 1).signer()]);
    assert_eq!(directory.digest(), self::directory(&[signed(2, 1, 1)]).digest());
}

fn some_reports() -> impl Strategy<Value = Vec<Signed<Report>>> {
    let one =
        (0u8..4, 1u64..3, 1u64..4).prop_map(|(node, start, version)| signed(node, start, version));
    proptest::collection::vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn order_and_repetition_do_not_matter(mut reports in some_reports()) {
        let ages = directory(&reports).ages(None, 100);
        let digest = directory(&reports).digest();
        reports.extend(reports.clone());
        reports.reverse();
        let again = directory(&reports);
        prop_assert_eq!(again.ages(None, 100), ages);
        prop_assert_eq!(again.digest(), digest);
    }

    #[test]
    fn digests_are_equal_exactly_when_ages_are(a in some_reports(), b in some_reports()) {
        let (a, b) = (directory(&a), directory(&b));
        prop_assert_eq!(a.digest() == b.digest(), a.ages(None, 100) == b.ages(None, 100));
    }
}

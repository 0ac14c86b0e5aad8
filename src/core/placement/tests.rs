//! Placement: what fits, what is best, and that nothing is ever placed twice.

use proptest::prelude::*;

use super::*;
use crate::core::report::testing::{gpu, report};

const GIB: u64 = 1 << 30;

fn need(gpus: u32) -> Need {
    Need { gpus, ..Need::default() }
}

fn node_of(placement: &Placement) -> Option<NodeId> {
    match placement {
        Placement::Fits { node, .. } => Some(*node),
        _ => None,
    }
}

#[test]
fn a_small_need_goes_to_the_node_that_it_fills() {
    let big = report(1, vec![gpu("a", "A100", 80); 4]);
    let small = report(2, vec![gpu("b", "A100", 80)]);
    let placement = place(&need(1), &[&big, &small], &Held::default());
    assert_eq!(node_of(&placement), Some(small.node));
}

#[test]
fn the_smallest_gpus_that_suffice_are_taken() {
    let mixed = report(1, vec![gpu("big", "A100", 80), gpu("small", "A100", 24)]);
    let want = Need { memory_bytes: Some(20 * GIB), ..need(1) };
    let Placement::Fits { gpus, .. } = place(&want, &[&mixed], &Held::default()) else {
        panic!("it fits");
    };
    assert_eq!(gpus[0].0, GpuUuid("small".into()));
}

#[test]
fn a_model_is_found_whatever_its_separators() {
    assert!(matches_model("rtx_4090", "NVIDIA GeForce RTX 4090"));
    assert!(matches_model("A100", "NVIDIA A100-SXM4-80GB"));
    assert!(!matches_model("h100", "NVIDIA A100-SXM4-80GB"));
}

#[test]
fn what_no_node_has_is_infeasible_and_the_best_is_named() {
    let one = report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)]);
    let want = Need { model: Some("a100".into()), ..need(3) };
    let best = feasible(&want, [&one].into_iter()).unwrap_err();
    assert_eq!((best.gpus, best.node), (2, Some(one.name)));
}

#[test]
fn a_broken_gpu_counts_for_nothing_and_the_others_stay() {
    let mut lame = report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)]);
    lame.gpus[0].health = GpuHealth::Broken("lost".into());
    assert!(node_of(&place(&need(1), &[&lame], &Held::default())).is_some());
    assert_eq!(node_of(&place(&need(2), &[&lame], &Held::default())), None);
    // It may be mended.
    assert_eq!(feasible(&need(2), [&lame].into_iter()), Ok(()));
}

#[test]
fn a_draining_node_is_waited_for_but_not_used() {
    let mut draining = report(1, vec![gpu("a", "A100", 80)]);
    draining.state = NodeState::Draining;
    assert!(matches!(place(&need(1), &[&draining], &Held::default()), Placement::Busy { .. }));
}

#[test]
fn a_waiting_need_blocks_what_it_could_use_and_nothing_else() {
    let big = report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)]);
    let small = report(2, vec![gpu("c", "RTX 4090", 24)]);
    let mut held = Held::default();
    block(&need(2), &[&big, &small], &mut held);
    assert_eq!(node_of(&place(&need(1), &[&big, &small], &held)), Some(small.node));
}

proptest! {
    #[test]
    fn a_model_matches_if_what_counts_of_it_contains_what_counts_of_the_asked(
        asked in "[aA1 -]{0,3}", model in "[aAbB1 _-]{0,8}",
    ) {
        let kept = |text: &str| text.replace([' ', '-', '_'], "").to_lowercase();
        prop_assert_eq!(matches_model(&asked, &model), kept(&model).contains(&kept(&asked)));
    }

    #[test]
    fn whatever_is_placed_one_after_the_other_never_overlaps(
        sizes in proptest::collection::vec(0usize..5, 1..6),
        needs in proptest::collection::vec(1u32..4, 1..12),
    ) {
        let reports: Vec<Report> = sizes
            .iter()
            .enumerate()
            .map(|(n, size)| {
                let gpus = (0..*size).map(|i| gpu(&format!("{n}-{i}"), "A100", 80)).collect();
                report(n as u8, gpus)
            })
            .collect();
        let fleet: Vec<&Report> = reports.iter().collect();
        let mut held = Held::default();
        let mut seen = BTreeSet::new();
        for gpus in needs {
            match place(&need(gpus), &fleet, &held) {
                Placement::Fits { node, gpus: placed, .. } => {
                    prop_assert_eq!(placed.len(), gpus as usize);
                    for (uuid, _) in placed {
                        prop_assert!(seen.insert(uuid.clone()));
                        held.hold(node, &uuid);
                    }
                }
                Placement::Busy { free, .. } => {
                    let all: usize = sizes.iter().sum();
                    prop_assert_eq!(free as usize, all - seen.len());
                }
            }
            let could = sizes.iter().any(|size| *size >= gpus as usize);
            prop_assert_eq!(feasible(&need(gpus), reports.iter()).is_ok(), could);
        }
    }
}

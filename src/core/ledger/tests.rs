//! The ledger: every refusal, idempotence, and that two tasks never hold one GPU.

use proptest::prelude::*;

use super::*;
use crate::core::control::OrderKey;
use crate::core::id::Term;
use crate::core::report::GPUS_MAX;
use crate::core::report::testing::{gpu, node};
use crate::core::signed::Key;

const HOME: u8 = 2;
const CONTROLLER: u8 = 3;

fn task(job: u64) -> TaskId {
    TaskId { job: JobId::from_bits(job), attempt: Attempt(1) }
}

fn grant(job: u64, gpus: &[(&str, u64)]) -> Grant {
    Grant {
        term: Term(7),
        job: JobId::from_bits(job),
        attempt: Attempt(1),
        home: node(HOME),
        node: node(1),
        incarnation: Incarnation(4),
        gpus: gpus.iter().map(|(gpu, seq)| (GpuUuid((*gpu).into()), LeaseSeq(*seq))).collect(),
        key: OrderKey::default(),
        ttl_ms: 1_000,
    }
}

fn offer(grant: Grant) -> Offer {
    Offer {
        offer: 1,
        from: node(HOME),
        may_submit: true,
        grant: Key::from_seed(&[CONTROLLER; 32]).sign(grant),
        owner: "o".into(),
        name: "n".into(),
        follows: Some(Reign { term: Term(7), controller: node(CONTROLLER) }),
        at: WallTime(0),
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(node(1), Incarnation(4), Config { tasks_max: 3 });
    let gpus = vec![gpu("a", "A100", 80), gpu("b", "A100", 80)];
    ledger.handle(Input::Inventory(gpus), &mut Outbox::new());
    ledger
}

fn handle(ledger: &mut Ledger, input: Input) -> Vec<Effect> {
    let mut out = Outbox::new();
    ledger.handle(input, &mut out);
    out.drain().collect()
}

fn refusal(ledger: &mut Ledger, offer: Offer) -> Option<Refusal> {
    match handle(ledger, Input::Offer(Box::new(offer))).into_iter().next() {
        Some(Effect::Refuse { refusal, .. }) => Some(refusal),
        Some(Effect::Accept { .. }) => None,
        other => panic!("an offer is answered, not {other:?}"),
    }
}

#[test]
fn a_good_grant_is_leased_and_the_gpu_is_taken_from_then_on() {
    let mut ledger = ledger();
    assert_eq!(refusal(&mut ledger, offer(grant(1, &[("a", 0)]))), None);
    let gpu = &ledger.gpus()[0];
    assert_eq!((gpu.seq, gpu.is_free()), (LeaseSeq(1), false));
    let taken = Refusal::Taken { gpu: GpuUuid("a".into()) };
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 0)]))), Some(taken.clone()));
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 1)]))), Some(taken));
}

#[test]
fn a_released_gpu_is_leased_again_only_under_its_new_number() {
    let mut ledger = ledger();
    refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    handle(&mut ledger, Input::Gone { task: task(1) });
    let taken = Refusal::Taken { gpu: GpuUuid("a".into()) };
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 0)]))), Some(taken));
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 1)]))), None);
}

#[test]
fn grants_for_others_are_refused_each_with_its_reason() {
    let good = || grant(1, &[("a", 0)]);
    let cases: Vec<(Offer, Refusal)> = vec![
        (offer(Grant { node: node(9), ..good() }), Refusal::OtherNode),
        (offer(Grant { incarnation: Incarnation(3), ..good() }), Refusal::OtherIncarnation),
        (offer(Grant { home: node(9), ..good() }), Refusal::OtherHome),
        (Offer { may_submit: false, ..offer(good()) }, Refusal::MayNotSubmit),
        (offer(Grant { term: Term(6), ..good() }), Refusal::OldTerm { newest: Term(7) }),
        (offer(grant(1, &[("z", 0)])), Refusal::UnknownGpu { gpu: GpuUuid("z".into()) }),
        (offer(grant(1, &[("a", 0), ("a", 0)])), Refusal::Taken { gpu: GpuUuid("a".into()) }),
    ];
    for (offer, why) in cases {
        assert_eq!(refusal(&mut ledger(), offer), Some(why));
    }
    let [lower, _] = rivals();
    let lost = Offer { grant: lower.sign(good()), ..offer(good()) };
    assert_eq!(refusal(&mut ledger(), lost), Some(Refusal::NotController));
}

/// Two keys whose reigns of the term are lower and higher than that of the controller.
fn rivals() -> [Key; 2] {
    let keys = || (10..100).map(|seed| Key::from_seed(&[seed; 32]));
    let lower = keys().find(|key| key.id() < node(CONTROLLER)).unwrap();
    let higher = keys().find(|key| key.id() > node(CONTROLLER)).unwrap();
    [lower, higher]
}

/// Found by the exhaustive checker, with offers that arrive again and again: what was refused as a
/// rival's was accepted when the rival was followed, while the job ran elsewhere.
#[test]
fn a_grant_of_the_higher_of_two_reigns_is_honoured_before_it_is_followed() {
    let [_, higher] = rivals();
    let good = grant(1, &[("a", 0)]);
    let won = Offer { grant: higher.sign(good.clone()), ..offer(good) };
    assert_eq!(refusal(&mut ledger(), won), None);
}

/// Found by the exhaustive checker: an attempt that had run was refused as a rival's, from which
/// its home concluded that it never began.
#[test]
fn an_attempt_that_was_accepted_is_never_refused_for_another_reason() {
    let mut ledger = ledger();
    refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    handle(&mut ledger, Input::Gone { task: task(1) });
    let later = Some(Reign { term: Term(8), controller: node(CONTROLLER) });
    let again = Offer { follows: later, ..offer(grant(1, &[("a", 0)])) };
    let seen = Refusal::OldAttempt { latest: Attempt(1) };
    assert_eq!(refusal(&mut ledger, again), Some(seen));
}

#[test]
fn a_grant_of_a_reign_not_heard_of_yet_is_honoured() {
    let newer = offer(Grant { term: Term(8), ..grant(1, &[("a", 0)]) });
    assert_eq!(refusal(&mut ledger(), newer), None);
}

#[test]
fn presenting_twice_starts_once() {
    let mut ledger = ledger();
    refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    let again = handle(&mut ledger, Input::Offer(Box::new(offer(grant(1, &[("a", 0)])))));
    assert_eq!(again, [Effect::Resume { offer: 1, task: task(1) }]);
    handle(&mut ledger, Input::Gone { task: task(1) });
    let late = refusal(&mut ledger, offer(grant(1, &[("a", 1)])));
    assert_eq!(late, Some(Refusal::OldAttempt { latest: Attempt(1) }));
}

#[test]
fn an_attempt_that_was_denied_to_its_home_is_never_accepted_later() {
    let mut ledger = ledger();
    handle(&mut ledger, Input::Forswear { task: task(1) });
    let late = refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    assert_eq!(late, Some(Refusal::OldAttempt { latest: Attempt(1) }));
    let next = Grant { attempt: Attempt(2), ..grant(1, &[("a", 0)]) };
    assert_eq!(refusal(&mut ledger, offer(next)), None);
}

#[test]
fn what_sigkill_does_not_end_quarantines_its_gpu_and_not_the_node() {
    let mut ledger = ledger();
    refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    handle(&mut ledger, Input::Stuck { task: task(1), why: "pid 7".into() });
    assert!(matches!(ledger.gpus()[0].health, GpuHealth::Quarantined(_)));
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("b", 0)]))), None);
    handle(&mut ledger, Input::Gone { task: task(1) });
    assert!(ledger.gpus()[0].is_free());
}

#[test]
fn an_adopted_lease_holds_its_gpu_before_and_after_the_inventory() {
    let mut ledger = Ledger::new(node(1), Incarnation(4), Config::default());
    let record = LeaseRecord {
        task: task(5),
        gpus: vec![(GpuUuid("a".into()), LeaseSeq(9))],
        home: node(HOME),
        owner: "o".into(),
        name: "n".into(),
        since: WallTime(1),
    };
    handle(&mut ledger, Input::Adopt(record));
    handle(&mut ledger, Input::Inventory(vec![gpu("a", "A100", 80)]));
    let taken = Refusal::Taken { gpu: GpuUuid("a".into()) };
    assert_eq!(refusal(&mut ledger, offer(grant(1, &[("a", 9)]))), Some(taken));
    handle(&mut ledger, Input::Gone { task: task(5) });
    assert_eq!(refusal(&mut ledger, offer(grant(1, &[("a", 9)]))), None);
}

#[test]
fn a_gpu_that_vanishes_is_shown_as_broken_and_keeps_its_number() {
    let mut ledger = ledger();
    assert_eq!(refusal(&mut ledger, offer(grant(1, &[("a", 0)]))), None);
    handle(&mut ledger, Input::Gone { task: task(1) });
    handle(&mut ledger, Input::Inventory(vec![gpu("b", "A100", 80)]));
    let shown = ledger.gpus().into_iter().find(|gpu| gpu.uuid.0 == "a").unwrap();
    assert!(matches!(shown.health, GpuHealth::Broken(_)));
    handle(&mut ledger, Input::Inventory(vec![gpu("a", "A100", 80)]));
    let taken = Refusal::Taken { gpu: GpuUuid("a".into()) };
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 0)]))), Some(taken));
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("a", 1)]))), None);
}

#[test]
fn vanished_gpus_make_room_for_others_and_no_old_grant_is_honoured() {
    let mut ledger = Ledger::new(node(1), Incarnation(4), Config::default());
    let named = |range: std::ops::Range<usize>| {
        range.map(|n| gpu(&format!("g{n}"), "A100", 80)).collect::<Vec<Gpu>>()
    };
    handle(&mut ledger, Input::Inventory(named(0..GPUS_MAX)));
    handle(&mut ledger, Input::Inventory(named(1..GPUS_MAX + 9)));
    assert_eq!(ledger.gpus().len(), GPUS_MAX);
    handle(&mut ledger, Input::Inventory(named(0..1)));
    let taken = Refusal::Taken { gpu: GpuUuid("g0".into()) };
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("g0", 0)]))), Some(taken));
    let seq = ledger.gpus()[0].seq.0;
    assert_eq!(refusal(&mut ledger, offer(grant(2, &[("g0", seq)]))), None);
}

#[test]
fn a_gpu_of_two_adopted_leases_is_free_when_both_have_ended() {
    let mut ledger = ledger();
    for (job, seq) in [(91, 1), (92, 2)] {
        let record = LeaseRecord {
            task: task(job),
            gpus: vec![(GpuUuid("a".into()), LeaseSeq(seq))],
            home: node(2),
            owner: "o".into(),
            name: "n".into(),
            since: WallTime(1),
        };
        handle(&mut ledger, Input::Adopt(record));
    }
    let lease = |ledger: &Ledger| {
        let gpus = ledger.gpus();
        gpus.iter().find(|gpu| gpu.uuid.0 == "a").and_then(|gpu| gpu.lease.clone())
    };
    handle(&mut ledger, Input::Gone { task: task(91) });
    assert_eq!(lease(&ledger).map(|lease| lease.job), Some(JobId::from_bits(92)));
    handle(&mut ledger, Input::Gone { task: task(92) });
    assert_eq!(lease(&ledger), None);
}

#[test]
fn a_gpu_that_vanishes_under_a_task_is_broken_and_stays_so_when_it_ends() {
    let mut ledger = ledger();
    refusal(&mut ledger, offer(grant(1, &[("a", 0)])));
    handle(&mut ledger, Input::Inventory(vec![gpu("b", "A100", 80)]));
    assert!(matches!(ledger.gpus()[0].health, GpuHealth::Broken(_)));
    handle(&mut ledger, Input::Gone { task: task(1) });
    assert!(matches!(ledger.gpus()[0].health, GpuHealth::Broken(_)));
}

#[test]
fn a_task_whose_outcome_is_given_up_was_here_for_its_home_alone_until_that_knows() {
    let mut ledger = ledger();
    assert_eq!(ledger.trace(task(1), node(2)), Trace::Nothing);
    handle(&mut ledger, Input::GivenUp { task: task(1), home: node(2) });
    assert_eq!(ledger.trace(task(1), node(2)), Trace::GivenUp);
    assert_eq!(ledger.trace(task(1), node(3)), Trace::Nothing);
    handle(&mut ledger, Input::Acknowledged { task: task(1) });
    assert_eq!(ledger.trace(task(1), node(2)), Trace::Nothing);
    // It remembers many, and not all.
    (0..10_000).for_each(|job| {
        handle(&mut ledger, Input::GivenUp { task: task(job), home: node(2) });
    });
    assert_eq!(ledger.trace(task(0), node(2)), Trace::Nothing);
    assert_eq!(ledger.trace(task(9_000), node(2)), Trace::GivenUp);
}

#[test]
fn a_draining_node_and_a_full_one_refuse() {
    let mut full = ledger();
    for job in 1..=3 {
        assert_eq!(refusal(&mut full, offer(grant(job, &[]))), None);
    }
    assert_eq!(refusal(&mut full, offer(grant(4, &[]))), Some(Refusal::TooManyTasks { limit: 3 }));
    let mut draining = ledger();
    handle(&mut draining, Input::State(NodeState::Draining));
    assert_eq!(refusal(&mut draining, offer(grant(1, &[]))), Some(Refusal::NotServing));
}

#[derive(Clone, Debug)]
enum Step {
    Offer { job: u64, gpu: usize, seq: u64 },
    Gone(u64),
    Ended(u64),
    Stuck(u64),
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..6, 0usize..3, 0u64..4)
            .prop_map(|(job, gpu, seq)| Step::Offer { job, gpu, seq }),
        2 => (0u64..6).prop_map(Step::Gone),
        1 => (0u64..6).prop_map(Step::Ended),
        1 => (0u64..6).prop_map(Step::Stuck),
        1 => (0usize..4).prop_map(Step::Lose),
    ]
}

proptest! {
    /// Against a model of a few lines: who holds what, and under which number.
    #[test]
    fn no_history_gives_one_gpu_to_two_tasks(steps in proptest::collection::vec(step(), 1..60)) {
        let names = ["x", "y", "z"];
        let all: Vec<Gpu> = names.iter().map(|name| gpu(name, "A100", 80)).collect();
        let mut ledger = Ledger::new(node(1), Incarnation(4), Config::default());
        handle(&mut ledger, Input::Inventory(all.clone()));
        let mut holder: BTreeMap<String, TaskId> = BTreeMap::new();
        let mut numbers: BTreeMap<GpuUuid, LeaseSeq> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Offer { job, gpu, seq } => {
                    let made = offer(grant(job, &[(names[gpu], seq)]));
                    for effect in handle(&mut ledger, Input::Offer(Box::new(made))) {
                        if let Effect::Accept { lease, .. } = effect {
                            for (uuid, _) in lease.gpus {
                                prop_assert!(holder.insert(uuid.0, lease.task).is_none());
                            }
                        }
                    }
                }
                Step::Gone(job) => {
                    handle(&mut ledger, Input::Gone { task: task(job) });
                    holder.retain(|_, held| *held != task(job));
                }
                Step::Ended(job) => {
                    handle(&mut ledger, Input::CommandEnded { task: task(job) });
                }
                Step::Stuck(job) => {
                    handle(&mut ledger, Input::Stuck { task: task(job), why: String::new() });
                }
                Step::Lose(gpu) => {
                    let left = all.iter().enumerate().filter(|(n, _)| *n != gpu);
                    let left = left.map(|(_, gpu)| gpu.clone()).collect();
                    handle(&mut ledger, Input::Inventory(left));
                    handle(&mut ledger, Input::Inventory(all.clone()));
                }
            }
            for gpu in ledger.gpus() {
                prop_assert_eq!(gpu.lease.is_some(), holder.contains_key(&gpu.uuid.0));
                let number = numbers.entry(gpu.uuid.clone()).or_default();
                prop_assert!(gpu.seq >= *number);
                *number = gpu.seq;
            }
        }
    }
}

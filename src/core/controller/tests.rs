//! The controller: order, idempotence, grants under way, and what a new reign does first.

use super::*;
use crate::core::control::OrderKey;
use crate::core::grant::Refusal;
use crate::core::id::{Attempt, GpuUuid, JobId, LeaseSeq};
use crate::core::report::Report;
use crate::core::report::testing::{gpu, node, report};
use crate::core::request::Need;

const T0: Instant = Instant::from_nanos(1_000_000_000);

fn task(job: u64) -> TaskId {
    TaskId { job: JobId::from_bits(job), attempt: Attempt(1) }
}

fn ask(job: u64, gpus: u32) -> Ask {
    let need = Need { gpus, ..Need::default() };
    Ask {
        task: task(job),
        need,
        owner: "o".into(),
        key: None,
        refused: Vec::new(),
        barred: Vec::new(),
    }
}

/// A controller that reigns and has settled, its fleet, and what it sent.
struct Desk {
    controller: Controller,
    fleet: Vec<Report>,
    absent: Vec<Report>,
    guests: Vec<Report>,
    now: Instant,
}

impl Desk {
    fn new(fleet: Vec<Report>) -> Self {
        let mut controller = Controller::new(Key::from_seed(&[9; 32]), Config::default());
        let mut out = Outbox::new();
        let reigns = Input::Reigns { term: Term(5), members: Vec::new() };
        controller.handle(reigns, &Fleet::default(), T0, &mut out);
        Self { controller, fleet, absent: Vec::new(), guests: Vec::new(), now: T0 }
    }

    fn handle(&mut self, input: Input) -> Vec<Send> {
        let mut out = Outbox::new();
        let fleet = Fleet {
            alive: self.fleet.iter().collect(),
            guests: self.guests.iter().collect(),
            absent: self.absent.iter().collect(),
        };
        self.controller.handle(input, &fleet, self.now, &mut out);
        out.drain().collect()
    }

    fn ask(&mut self, home: u8, ask: Ask) -> Vec<Send> {
        self.handle(Input::Received(node(home), Message::Ask(ask)))
    }

    fn wait(&mut self, span: Duration) -> Vec<Send> {
        self.now = self.now + span;
        self.handle(Input::Deadline)
    }
}

fn grants(sent: &[Send]) -> Vec<&Grant> {
    sent.iter()
        .filter_map(|Send(_, message)| match message {
            Message::Granted(grant) => Some(grant.value()),
            _ => None,
        })
        .collect()
}

fn reason(sent: &[Send]) -> Option<&WaitReason> {
    sent.iter().find_map(|Send(_, message)| match message {
        Message::Queued { reason, .. } => Some(reason),
        _ => None,
    })
}

#[test]
fn a_free_gpu_is_granted_in_the_same_call_and_only_once() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let sent = desk.ask(2, ask(1, 1));
    let grant = grants(&sent)[0];
    assert_eq!((grant.node, grant.home, grant.term), (node(1), node(2), Term(5)));
    assert_eq!(grant.gpus, [(GpuUuid("a".into()), LeaseSeq(0))]);
    let sent = desk.ask(3, ask(2, 1));
    assert_eq!(reason(&sent), Some(&WaitReason::Busy { matching: 1, free: 0, ahead: 0 }));
}

#[test]
fn asking_again_gives_the_same_grant_again() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let first = desk.ask(2, ask(1, 1));
    assert_eq!(desk.ask(2, ask(1, 1)), first);
}

#[test]
fn a_refused_grant_is_not_given_again_to_the_node_that_cannot_start_it() {
    let mut desk = Desk::new(vec![
        report(1, vec![gpu("a", "A100", 80)]),
        report(2, vec![gpu("b", "A100", 80)]),
    ]);
    let first = grants(&desk.ask(3, ask(1, 1)))[0].clone();
    let refusal = Refusal::CannotStart { why: "no such directory".into(), elsewhere: true };
    let again = Ask { refused: vec![(first.clone(), refusal)], ..ask(1, 1) };
    let second = desk.ask(3, again);
    assert_ne!(grants(&second)[0].node, first.node);
}

fn is_barred(sent: &[Send]) -> bool {
    sent.iter().any(|Send(_, message)| matches!(message, Message::Barred { .. }))
}

#[test]
fn nodes_without_the_directory_are_left_out_until_they_are_restarted() {
    let mut desk = Desk::new(vec![
        report(1, vec![gpu("a", "A100", 80)]),
        report(2, vec![gpu("b", "A100", 80)]),
        report(3, vec![gpu("c", "RTX4090", 24)]),
    ]);
    let need = Need { gpus: 1, model: Some("a100".into()), ..Need::default() };
    let ask = |barred: &[u8]| {
        let barred = barred.iter().map(|number| (node(*number), Incarnation(1))).collect();
        Ask { need: need.clone(), barred, ..ask(1, 1) }
    };
    let first = grants(&desk.ask(3, ask(&[])))[0].clone();
    assert_eq!(first.node, node(1).min(node(2)));
    desk.handle(Input::Received(node(3), Message::Withdraw { task: task(1) }));
    assert_eq!(grants(&desk.ask(3, ask(&[1])))[0].node, node(2));
    desk.handle(Input::Received(node(3), Message::Withdraw { task: task(1) }));
    // The third could never fill it.
    assert!(is_barred(&desk.ask(3, ask(&[1, 2]))));
    // One that is away may have the directory.
    desk.absent = desk.fleet.split_off(1);
    let sent = desk.ask(3, ask(&[1]));
    assert!(!is_barred(&sent) && grants(&sent).is_empty());
    desk.fleet[0].incarnation = Incarnation(2);
    let sent = desk.handle(Input::FleetChanged(node(1)));
    assert_eq!(grants(&sent)[0].node, node(1));
}

#[test]
fn a_freed_gpu_goes_to_the_first_in_the_queue() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    desk.ask(4, ask(3, 1));
    // It was leased, and is free again.
    desk.fleet[0].gpus[0].seq = LeaseSeq(1);
    let sent = desk.handle(Input::FleetChanged(node(1)));
    let granted = grants(&sent);
    assert_eq!((granted.len(), granted[0].job), (1, JobId::from_bits(2)));
}

#[test]
fn a_big_request_is_not_starved_by_small_ones_behind_it() {
    let mut busy = report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)]);
    busy.gpus[0].health = crate::core::report::GpuHealth::Usable;
    let mut desk = Desk::new(vec![busy]);
    desk.ask(2, ask(1, 1));
    desk.ask(2, ask(2, 2));
    let sent = desk.ask(3, ask(3, 1));
    assert!(grants(&sent).is_empty());
    assert_eq!(reason(&sent), Some(&WaitReason::Behind { ahead: 1 }));
}

#[test]
fn a_later_request_passes_on_gpus_that_are_of_no_use_to_the_earlier() {
    let mut desk = Desk::new(vec![
        report(1, vec![gpu("a", "A100", 80)]),
        report(2, vec![gpu("b", "RTX 4090", 24)]),
    ]);
    let a100 = |job| {
        let mut ask = ask(job, 1);
        ask.need.model = Some("a100".into());
        ask
    };
    desk.ask(3, a100(1));
    desk.ask(3, a100(2));
    assert_eq!(grants(&desk.ask(4, ask(3, 1)))[0].node, node(2));
}

#[test]
fn the_impossible_is_told_at_once_to_the_new_and_never_to_those_who_wait() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let sent = desk.ask(2, ask(1, 9));
    assert!(matches!(&sent[0].1, Message::Infeasible { best, .. } if best.gpus == 1));
    desk.ask(2, ask(2, 1));
    desk.ask(2, ask(3, 1));
    desk.fleet.clear();
    let sent = desk.wait(Duration::from_secs(2));
    assert!(!sent.iter().any(|Send(_, message)| matches!(message, Message::Infeasible { .. })));
    assert_eq!(desk.controller.waiting(), 1);
}

#[test]
fn what_only_a_node_that_is_away_has_is_waited_for() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.absent.push(report(2, vec![gpu("b", "A100", 80), gpu("c", "A100", 80)]));
    let sent = desk.ask(3, ask(1, 2));
    assert_eq!(reason(&sent), Some(&WaitReason::Busy { matching: 1, free: 1, ahead: 0 }));
    // And for a link that is lost.
    desk.handle(Input::Unlinked(node(1)));
    assert!(reason(&desk.ask(3, ask(2, 1))).is_some());
    assert!(matches!(&desk.ask(3, ask(3, 9))[0].1, Message::Infeasible { .. }));
}

#[test]
fn a_request_that_its_home_does_not_repeat_is_dropped() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.fleet[0].gpus[0].health = crate::core::report::GpuHealth::Broken("lost".into());
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    for round in 0..7 {
        assert!(round > 4 || desk.controller.waiting() == 2);
        desk.now = desk.now + Duration::from_secs(14);
        desk.ask(3, ask(2, 1));
        desk.handle(Input::Deadline);
    }
    assert_eq!(desk.controller.waiting(), 1);
}

#[test]
fn a_home_that_does_not_know_its_place_is_told_again() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    let told = desk.ask(3, ask(2, 1));
    assert_eq!(desk.ask(3, ask(2, 1)), told);
    let Message::Queued { key, .. } = &told[0].1 else { panic!("it waits") };
    assert!(desk.ask(3, Ask { key: Some(*key), ..ask(2, 1) }).is_empty());
}

#[test]
fn a_grant_that_is_never_presented_frees_its_gpu() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    let sent = desk.wait(Duration::from_secs(31));
    assert_eq!(grants(&sent)[0].job, JobId::from_bits(2));
}

#[test]
fn withdrawing_frees_at_once_and_only_the_home_may_withdraw() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    let withdraw = Message::Withdraw { task: task(1) };
    assert!(desk.handle(Input::Received(node(4), withdraw.clone())).is_empty());
    let sent = desk.handle(Input::Received(node(2), withdraw));
    assert_eq!(grants(&sent)[0].job, JobId::from_bits(2));
}

#[test]
fn a_new_reign_listens_first_and_serves_the_old_queue_in_its_order() {
    let fleet = vec![report(1, vec![gpu("a", "A100", 80)])];
    let mut desk = Desk::new(fleet);
    let members = vec![node(1), node(2), node(3)];
    desk.handle(Input::Reigns { term: Term(6), members });
    assert!(desk.ask(3, ask(2, 1)).is_empty());
    let old = OrderKey { term: Term(5), seq: 3 };
    for number in [1, 2, 3] {
        let asks = match number {
            2 => vec![Ask { key: Some(old), ..ask(1, 1) }],
            _ => Vec::new(),
        };
        let report = Key::from_seed(&[number; 32]).sign(report(number, Vec::new()));
        let present = Message::Present { term: Term(6), report, asks };
        let sent = desk.handle(Input::Received(node(number), present));
        if number == 3 {
            assert_eq!(grants(&sent)[0].job, JobId::from_bits(1));
        } else {
            assert!(sent.is_empty());
        }
    }
}

#[test]
fn nothing_is_placed_on_a_node_whose_link_is_lost_until_it_is_back() {
    let mut desk = Desk::new(vec![
        report(1, vec![gpu("a", "A100", 80)]),
        report(2, vec![gpu("b", "A100", 80)]),
    ]);
    desk.handle(Input::Unlinked(node(1)));
    assert_eq!(grants(&desk.ask(3, ask(1, 1)))[0].node, node(2));
    let sent = desk.ask(3, ask(2, 1));
    assert!(grants(&sent).is_empty() && reason(&sent).is_some());
    let sent = desk.handle(Input::Linked(node(1)));
    assert_eq!(grants(&sent)[0].node, node(1));
}

#[test]
fn a_silent_member_does_not_hold_a_new_reign_up() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.handle(Input::Reigns { term: Term(6), members: vec![node(1), node(2)] });
    desk.ask(2, ask(1, 1));
    assert_eq!(grants(&desk.wait(Duration::from_millis(500))).len(), 1);
}

#[test]
fn grants_of_a_restarted_node_are_forgotten() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    desk.fleet[0].incarnation = Incarnation(2);
    let sent = desk.handle(Input::FleetChanged(node(1)));
    assert_eq!(grants(&sent)[0].incarnation, Incarnation(2));
}

#[test]
fn grants_in_the_hands_of_a_home_that_was_restarted_are_taken_back() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)]), report(2, Vec::new())]);
    desk.ask(2, ask(1, 1));
    desk.ask(3, ask(2, 1));
    assert!(desk.handle(Input::FleetChanged(node(2))).is_empty());
    desk.fleet[1].incarnation = Incarnation(2);
    let sent = desk.handle(Input::FleetChanged(node(2)));
    assert_eq!(grants(&sent)[0].job, JobId::from_bits(2));
}

#[test]
fn reasons_are_told_once_a_second_at_most() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    desk.ask(2, ask(2, 1));
    assert!(reason(&desk.ask(2, ask(3, 1))).is_some());
    let withdraw = Message::Withdraw { task: task(2) };
    assert!(desk.handle(Input::Received(node(2), withdraw)).is_empty());
    let sent = desk.wait(Duration::from_secs(1));
    assert_eq!(reason(&sent), Some(&WaitReason::Busy { matching: 1, free: 0, ahead: 0 }));
}

#[test]
fn equal_requests_that_move_up_are_told_their_own_places() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)])]);
    desk.ask(2, ask(1, 1));
    // Two that need more than is free, and behind them two that could use it.
    for (job, gpus) in [(2, 2), (3, 2), (4, 2), (5, 1), (6, 1)] {
        desk.ask(2, ask(job, gpus));
    }
    desk.handle(Input::Received(node(2), Message::Withdraw { task: task(2) }));
    let reasons: Vec<WaitReason> = desk
        .wait(Duration::from_secs(2))
        .into_iter()
        .filter_map(|Send(_, message)| match message {
            Message::Queued { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    let busy = |ahead| WaitReason::Busy { matching: 2, free: 1, ahead };
    let behind = |ahead| WaitReason::Behind { ahead };
    assert_eq!(reasons, [busy(0), busy(1), behind(2), behind(3)]);
}

#[test]
fn a_request_larger_than_any_home_makes_is_not_kept() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let long = |len| Need { gpus: 1, model: Some("x".repeat(len)), ..Need::default() };
    let of = |need| Ask { need, key: Some(OrderKey::default()), ..ask(1, 1) };
    assert!(desk.ask(2, of(long(crate::core::report::TEXT_MAX + 1))).is_empty());
    assert_eq!(desk.controller.waiting(), 0);
    desk.ask(2, of(long(crate::core::report::TEXT_MAX)));
    assert_eq!(desk.controller.waiting(), 1);
    // What a node says at length is of no use to a controller.
    let grant = grants(&desk.ask(3, ask(2, 1)))[0].clone();
    let refusal = Refusal::CannotStart { why: "x".repeat(1 << 20), elsewhere: true };
    desk.ask(3, Ask { refused: vec![(grant, refusal)], ..ask(2, 1) });
    let kept = desk.controller.queue().find(|(_, waiting)| waiting.ask.task == task(2));
    let Some((_, waiting)) = kept else { panic!("it waits") };
    let [(_, Refusal::CannotStart { why, .. })] = &waiting.ask.refused[..] else { panic!() };
    assert!(why.is_empty());
}

#[test]
fn a_grant_between_equal_requests_takes_from_what_the_later_is_told_to_be_free() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.absent = vec![report(3, vec![gpu("c", "H100", 80), gpu("d", "H100", 80)])];
    let h100 = Need { gpus: 1, model: Some("h100".into()), ..Need::default() };
    desk.ask(2, ask(1, 2));
    desk.ask(2, Ask { need: h100, ..ask(2, 1) });
    desk.ask(2, ask(3, 2));
    let mut back = desk.absent.remove(0);
    back.gpus[1].health = crate::core::report::GpuHealth::Broken("lost".into());
    desk.fleet.push(back);
    desk.now = desk.now + Duration::from_secs(2);
    let sent = desk.handle(Input::FleetChanged(node(3)));
    assert_eq!(grants(&sent)[0].job, JobId::from_bits(2));
    let reasons: Vec<&WaitReason> = sent
        .iter()
        .filter_map(|Send(_, message)| match message {
            Message::Queued { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    let busy = |free, ahead| WaitReason::Busy { matching: 2, free, ahead };
    assert_eq!(reasons, [&busy(2, 0), &busy(1, 1)]);
}

fn cannot_start() -> Refusal {
    Refusal::CannotStart { why: "no such directory".into(), elsewhere: true }
}

/// The next attempt of a job, after its first was refused.
fn next_attempt(job: u64, refused: Grant, refusal: Refusal) -> Ask {
    let task = TaskId { attempt: Attempt(2), ..task(job) };
    Ask { task, refused: vec![(refused, refusal)], ..ask(job, 1) }
}

#[test]
fn a_request_does_not_block_a_node_that_refused_it() {
    let mut desk = Desk::new(vec![
        report(1, vec![gpu("a", "A100", 80)]),
        report(2, vec![gpu("b", "A100", 80)]),
    ]);
    let first = grants(&desk.ask(3, ask(1, 1)))[0].clone();
    assert_eq!(grants(&desk.ask(3, ask(2, 1))).len(), 1);
    assert!(grants(&desk.ask(3, next_attempt(1, first.clone(), cannot_start()))).is_empty());
    assert_eq!(grants(&desk.ask(4, ask(3, 1)))[0].node, first.node);
}

#[test]
fn a_later_attempt_gives_back_the_grant_of_the_earlier() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let first = grants(&desk.ask(3, ask(1, 1)))[0].clone();
    desk.ask(3, next_attempt(1, first, cannot_start()));
    assert_eq!(grants(&desk.ask(4, ask(2, 1)))[0].job, JobId::from_bits(2));
}

#[test]
fn the_grant_of_an_earlier_attempt_is_given_back_to_its_home_only() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    let first = grants(&desk.ask(3, ask(1, 1)))[0].clone();
    desk.ask(5, next_attempt(1, first, cannot_start()));
    assert!(grants(&desk.ask(4, ask(2, 1))).is_empty());
}

#[test]
fn a_gpu_that_was_refused_as_taken_is_left_until_its_report_is_another() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80), gpu("b", "A100", 80)])]);
    let first = grants(&desk.ask(3, ask(1, 1)))[0].clone();
    let refusal = Refusal::Taken { gpu: first.gpus[0].0.clone() };
    let again = Ask { refused: vec![(first.clone(), refusal)], ..ask(1, 1) };
    assert_ne!(grants(&desk.ask(3, again))[0].gpus, first.gpus);
}

#[test]
fn a_home_that_may_not_submit_is_told_so_for_each_request_and_nothing_of_it_waits() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    // Before that was known it was served: one has a grant, one waits.
    assert_eq!(grants(&desk.ask(2, ask(1, 1))).len(), 1);
    desk.ask(2, ask(2, 1));
    let report = Key::from_seed(&[2; 32]).sign(report(2, Vec::new()));
    let present = Message::Present { term: Term(5), report, asks: vec![ask(1, 1), ask(2, 1)] };
    let sent = desk.handle(Input::Barred(node(2), present));
    let told = |job| Send(node(2), Message::Forbidden { task: task(job) });
    assert_eq!(sent, [told(1), told(2)]);
    assert_eq!((desk.controller.waiting(), desk.controller.grants().count()), (0, 0));
    assert_eq!(grants(&desk.ask(3, ask(3, 1))).len(), 1);
}

#[test]
fn another_homes_request_is_not_touched_by_one_that_may_not_submit() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.ask(3, ask(1, 1));
    desk.ask(3, ask(2, 1));
    for job in [1, 2] {
        desk.handle(Input::Barred(node(2), Message::Ask(ask(job, 1))));
    }
    assert_eq!((desk.controller.waiting(), desk.controller.grants().count()), (1, 1));
}

#[test]
fn a_guest_is_served_and_given_nothing_to_do() {
    let mut desk = Desk::new(vec![report(1, vec![gpu("a", "A100", 80)])]);
    desk.guests = vec![report(2, vec![gpu("b", "H100", 80)])];
    assert_eq!(grants(&desk.ask(2, ask(1, 1)))[0].node, node(1));
    // Not even a task that needs no GPU.
    desk.fleet.clear();
    assert!(grants(&desk.ask(2, ask(2, 0))).is_empty());
    let need = Need { gpus: 1, model: Some("h100".into()), ..Need::default() };
    let sent = desk.ask(3, Ask { need, ..ask(3, 1) });
    assert!(matches!(sent[0].1, Message::Infeasible { .. }), "{sent:?}");
}

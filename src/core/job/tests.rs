//! A job at its home: asked for, offered, followed, and never started twice.

use proptest::prelude::*;

use super::*;
use crate::core::control::{Message, OrderKey};
use crate::core::grant::Refusal;
use crate::core::id::{Attempt, Incarnation, JobId, LeaseSeq, Reign, Term};
use crate::core::outbox::Outbox;
use crate::core::report::testing::node;
use crate::core::signed::{Key, Signed};
use crate::core::time::{Duration, Instant};

const HOME: u8 = 1;
const NODE: u8 = 2;
const CONTROLLER: u8 = 3;
const AT: WallTime = WallTime(5);

struct Home {
    jobs: Jobs,
    now: Instant,
}

fn task(attempt: u64) -> TaskId {
    TaskId { job: JobId::from_bits(7), attempt: Attempt(attempt) }
}

fn spec() -> JobSpec {
    JobSpec {
        id: JobId::from_bits(7),
        owner: "o".into(),
        name: "n".into(),
        need: Need { gpus: 1, ..Need::default() },
        command: Command::default(),
        submitted: AT,
    }
}

fn grant(attempt: u64) -> Signed<Grant> {
    Key::from_seed(&[CONTROLLER; 32]).sign(Grant {
        term: Term(1),
        job: JobId::from_bits(7),
        attempt: Attempt(attempt),
        home: node(HOME),
        node: node(NODE),
        incarnation: Incarnation(1),
        gpus: vec![(GpuUuid("a".into()), LeaseSeq(0))],
        key: OrderKey::default(),
        ttl_ms: 1_000,
    })
}

impl Home {
    /// A home that follows a controller and has one job.
    fn with_job() -> Self {
        let mut home = Self { jobs: Jobs::new(node(HOME)), now: Instant::ZERO };
        let reign = Reign { term: Term(1), controller: node(CONTROLLER) };
        home.handle(Input::Controller(Some(reign)));
        let effects = home.handle(Input::Submit(Box::new(spec())));
        assert!(effects.iter().any(|e| matches!(e, Effect::Control(Message::Ask(_)))));
        home
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Outbox::new();
        self.jobs.handle(input, self.now, AT, &mut out);
        out.drain().collect()
    }

    fn hear(&mut self, message: Message) -> Vec<Effect> {
        self.handle(Input::Received(node(CONTROLLER), Box::new(message)))
    }

    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        self.now = self.now + span;
        self.handle(Input::Deadline)
    }

    fn state(&self) -> &JobState {
        &self.jobs.find(JobId::from_bits(7)).unwrap().state
    }
}

fn stored(ended: bool) -> Input {
    Input::Stored { job: JobId::from_bits(7), ended }
}

fn offers(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Offer { .. })).count()
}

fn attaches(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Attach { .. })).count()
}

fn asks(effects: &[Effect]) -> Vec<TaskId> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Control(Message::Ask(ask)) => Some(ask.task),
            _ => None,
        })
        .collect()
}

#[test]
fn a_job_is_asked_for_offered_run_and_acknowledged_once_stored() {
    let mut home = Home::with_job();
    assert_eq!(offers(&home.hear(Message::Granted(grant(1)))), 1);
    home.handle(Input::Accepted { task: task(1), since: AT });
    assert!(matches!(home.state(), JobState::Running { connected: true, .. }));
    let outcome = Outcome::Exited { code: 7 };
    let effects = home.handle(Input::Ended { task: task(1), outcome, at: AT });
    assert!(!effects.contains(&Effect::Acknowledge { task: task(1) }));
    // The record of its start comes back late: that is not the one.
    assert!(home.handle(stored(false)).is_empty());
    assert_eq!(home.handle(stored(true)), [Effect::Acknowledge { task: task(1) }]);
}

/// Found by the exhaustive checker: the second word of an end was acknowledged at once.
#[test]
fn an_end_that_is_told_twice_is_not_acknowledged_before_it_is_stored() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    let ended = || Input::Ended { task: task(1), outcome: Outcome::Exited { code: 7 }, at: AT };
    home.handle(ended());
    assert!(home.handle(ended()).is_empty());
    assert_eq!(home.handle(stored(true)), [Effect::Acknowledge { task: task(1) }]);
    assert_eq!(home.handle(ended()), [Effect::Acknowledge { task: task(1) }]);
}

#[test]
fn a_grant_that_comes_twice_is_offered_once() {
    let mut home = Home::with_job();
    assert_eq!(offers(&home.hear(Message::Granted(grant(1)))), 1);
    assert_eq!(offers(&home.hear(Message::Granted(grant(1)))), 0);
}

#[test]
fn a_grant_that_nobody_wants_is_given_back() {
    let mut home = Home::with_job();
    home.handle(Input::Cancel { job: JobId::from_bits(7), now: false });
    let effects = home.hear(Message::Granted(grant(1)));
    assert_eq!(effects, [Effect::Control(Message::Withdraw { task: task(1) })]);
}

#[test]
fn one_who_is_not_the_controller_is_not_believed() {
    let mut home = Home::with_job();
    let lie = Message::Granted(grant(1));
    assert!(home.handle(Input::Received(node(9), Box::new(lie))).is_empty());
}

#[test]
fn an_offer_without_an_answer_is_followed_to_its_node_and_never_sent_elsewhere() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    home.handle(Input::StreamLost { task: task(1) });
    for _ in 0..20 {
        let effects = home.pass(Duration::from_secs(30));
        assert_eq!((attaches(&effects), asks(&effects).len()), (1, 0));
        home.handle(Input::StreamLost { task: task(1) });
    }
    let effects = home.handle(Input::UnknownTask { task: task(1) });
    assert_eq!(asks(&effects), [task(2)]);
}

#[test]
fn a_running_task_that_its_node_does_not_know_is_lost_and_not_started_again() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    home.handle(Input::Accepted { task: task(1), since: AT });
    home.handle(Input::StreamLost { task: task(1) });
    assert!(matches!(home.state(), JobState::Running { connected: false, .. }));
    let effects = home.handle(Input::UnknownTask { task: task(1) });
    assert!(asks(&effects).is_empty());
    assert!(matches!(home.state(), JobState::Ended { outcome: Outcome::Lost { .. }, .. }));
}

#[test]
fn a_lost_stream_is_opened_again_at_once_when_the_node_is_back() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    home.handle(Input::Accepted { task: task(1), since: AT });
    home.handle(Input::StreamLost { task: task(1) });
    assert_eq!(attaches(&home.handle(Input::NodeUp(node(NODE)))), 1);
    home.handle(Input::Attached { task: task(1), since: AT });
    assert!(matches!(home.state(), JobState::Running { connected: true, .. }));
    assert_eq!(attaches(&home.handle(Input::NodeUp(node(NODE)))), 0);
}

#[test]
fn a_refusal_is_told_to_the_controller_with_the_next_ask() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    let refusal = Refusal::Taken { gpu: GpuUuid("a".into()) };
    let effects = home.handle(Input::Refused { task: task(1), refusal: refusal.clone() });
    let ask = effects.iter().find_map(|effect| match effect {
        Effect::Control(Message::Ask(ask)) => Some(ask),
        _ => None,
    });
    assert_eq!(ask.unwrap().refused, [(grant(1).value().clone(), refusal)]);
}

#[test]
fn what_cannot_start_anywhere_is_rejected_with_the_reason() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    let refusal = Refusal::CannotStart { why: "no args".into(), elsewhere: false };
    home.handle(Input::Refused { task: task(1), refusal });
    assert!(matches!(home.state(), JobState::Rejected { why: Rejection::Refused { .. }, .. }));
}

/// Nodes that lack the directory are named in every later ask, and the controller ends the job.
#[test]
fn a_directory_that_is_nowhere_ends_the_job_with_the_nodes_that_lack_it() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    let refused = Input::Refused { task: task(1), refusal: Refusal::NoDirectory };
    let effects = home.handle(refused);
    let barred = effects.iter().find_map(|effect| match effect {
        Effect::Control(Message::Ask(ask)) if ask.task == task(2) => Some(ask.barred.clone()),
        _ => None,
    });
    assert_eq!(barred, Some(vec![(node(NODE), Incarnation(1))]));
    let told: Vec<_> = home.jobs.refusals(JobId::from_bits(7)).collect();
    assert_eq!(told, [(node(NODE), Refusal::NoDirectory)]);
    home.hear(Message::Barred { task: task(1) });
    assert!(!home.state().is_ended(), "said of an older attempt");
    home.hear(Message::Barred { task: task(2) });
    let nodes = vec![node(NODE)];
    let why = Rejection::NoDirectory { nodes };
    assert_eq!(home.state(), &JobState::Rejected { why, at: AT });
    assert_eq!(home.jobs.refusals(JobId::from_bits(7)).count(), 0);
}

#[test]
fn a_controller_that_bars_a_job_that_nobody_refused_is_not_believed() {
    let mut home = Home::with_job();
    home.hear(Message::Barred { task: task(1) });
    assert!(!home.state().is_ended());
}

#[test]
fn a_job_of_a_home_that_may_not_submit_is_rejected_with_what_to_do() {
    let mut home = Home::with_job();
    home.hear(Message::Forbidden { task: task(1) });
    let JobState::Rejected { why: Rejection::Refused { why }, .. } = home.state() else {
        panic!("{:?}", home.state());
    };
    assert!(why.contains("a ticket with the role `submit`"), "{why}");
}

#[test]
fn cancelling_works_in_every_state() {
    let cancel = || Input::Cancel { job: JobId::from_bits(7), now: false };
    let mut waiting = Home::with_job();
    let effects = waiting.handle(cancel());
    assert!(effects.contains(&Effect::Control(Message::Withdraw { task: task(1) })));
    assert!(matches!(waiting.state(), JobState::Rejected { .. }));

    let mut starting = Home::with_job();
    starting.hear(Message::Granted(grant(1)));
    assert!(starting.handle(cancel()).contains(&Effect::Stop { task: task(1), now: false }));
    let refusal = Refusal::NotServing;
    let effects = starting.handle(Input::Refused { task: task(1), refusal });
    assert!(asks(&effects).is_empty());
    assert!(matches!(starting.state(), JobState::Rejected { .. }));

    let mut running = Home::with_job();
    running.hear(Message::Granted(grant(1)));
    running.handle(Input::Accepted { task: task(1), since: AT });
    assert!(running.handle(cancel()).contains(&Effect::Stop { task: task(1), now: false }));
}

#[test]
fn a_place_in_the_queue_is_kept_and_shown_to_the_next_controller() {
    let mut home = Home::with_job();
    let key = OrderKey { term: Term(1), seq: 4 };
    let reason = WaitReason::Busy { matching: 1, free: 0, ahead: 3 };
    home.hear(Message::Queued { task: task(1), key, reason });
    let reign = Reign { term: Term(2), controller: node(9) };
    let effects = home.handle(Input::Controller(Some(reign)));
    let Some(Effect::Present(asks)) = effects.last() else { panic!("it presents itself") };
    assert_eq!(asks[0].key, Some(key));
}

#[test]
fn an_ask_without_an_answer_is_repeated() {
    let mut home = Home::with_job();
    assert_eq!(asks(&home.pass(Duration::from_secs(1))), [task(1)]);
    assert_eq!(asks(&home.pass(Duration::from_secs(2))), [task(1)]);
}

#[test]
fn a_request_is_repeated_however_often_its_reason_changes() {
    let mut home = Home::with_job();
    let mut repeated = 0;
    for ahead in 0..30 {
        let key = OrderKey { term: Term(1), seq: 4 };
        let reason = WaitReason::Busy { matching: 1, free: 0, ahead };
        home.hear(Message::Queued { task: task(1), key, reason });
        repeated += asks(&home.pass(Duration::from_secs(1))).len();
    }
    assert_eq!(repeated, 2);
}

#[test]
fn a_job_from_before_this_start_is_never_placed_again() {
    let mut home = Home { jobs: Jobs::new(node(HOME)), now: Instant::ZERO };
    let reign = Reign { term: Term(1), controller: node(CONTROLLER) };
    home.handle(Input::Controller(Some(reign)));
    let state = JobState::Starting { grant: grant(1).value().clone() };
    let record = JobRecord { spec: spec(), task: task(1), key: None, state, cancelled: false };
    assert_eq!(attaches(&home.handle(Input::Recall(Box::new(record)))), 1);
    // A later attempt may have been made and run, and nothing of it be on the disk.
    let effects = home.handle(Input::UnknownTask { task: task(1) });
    assert!(asks(&effects).is_empty());
    assert!(matches!(home.state(), JobState::Ended { outcome: Outcome::Lost { .. }, .. }));
}

#[test]
fn a_grant_that_is_not_wanted_is_given_back() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    assert!(home.hear(Message::Granted(grant(1))).is_empty());
    let other = Grant { term: Term(2), ..grant(1).value().clone() };
    let other = Key::from_seed(&[CONTROLLER; 32]).sign(other);
    let withdraw = [Effect::Control(Message::Withdraw { task: task(1) })];
    assert_eq!(home.hear(Message::Granted(other.clone())), withdraw);
    home.handle(Input::Accepted { task: task(1), since: AT });
    assert_eq!(home.hear(Message::Granted(other)), withdraw);
}

#[test]
fn a_recalled_running_job_goes_back_to_its_node() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    home.handle(Input::Accepted { task: task(1), since: AT });
    let record = home.jobs.find(JobId::from_bits(7)).unwrap().clone();
    let mut again = Home { jobs: Jobs::new(node(HOME)), now: Instant::ZERO };
    let effects = again.handle(Input::Recall(Box::new(record)));
    assert_eq!(effects, [Effect::Attach { task: task(1), node: node(NODE) }]);
}

#[test]
fn an_attempt_that_its_node_has_seen_is_followed_even_if_cancelled() {
    let mut home = Home::with_job();
    home.hear(Message::Granted(grant(1)));
    home.handle(Input::Cancel { job: JobId::from_bits(7), now: false });
    let refusal = Refusal::OldAttempt { latest: Attempt(1) };
    let effects = home.handle(Input::Refused { task: task(1), refusal });
    assert_eq!(attaches(&effects), 1);
    assert!(matches!(home.state(), JobState::Starting { .. }));
}

fn any_input() -> impl Strategy<Value = Input> {
    let attempt = 1u64..3;
    prop_oneof![
        attempt.clone().prop_map(|n| Input::Accepted { task: task(n), since: AT }),
        attempt.clone().prop_map(|n| Input::Attached { task: task(n), since: AT }),
        any::<bool>().prop_map(|now| Input::Cancel { job: JobId::from_bits(7), now }),
        Just(Input::Controller(None)),
        Just(Input::Controller(Some(Reign { term: Term(1), controller: node(CONTROLLER) }))),
        Just(Input::Deadline),
        attempt.clone().prop_map(|n| Input::Ended {
            task: task(n),
            outcome: Outcome::Exited { code: 0 },
            at: AT
        }),
        Just(Input::NodeUp(node(NODE))),
        attempt.clone().prop_map(|n| {
            let message = Box::new(Message::Granted(grant(n)));
            Input::Received(node(CONTROLLER), message)
        }),
        attempt
            .clone()
            .prop_map(|n| Input::Refused { task: task(n), refusal: Refusal::NotServing }),
        attempt.clone().prop_map(|n| Input::StreamLost { task: task(n) }),
        attempt.clone().prop_map(|n| Input::UnknownTask { task: task(n) }),
        attempt.prop_map(|n| Input::Unreachable { task: task(n), why: "w".into() }),
        any::<bool>().prop_map(stored),
    ]
}

proptest! {
    /// Whatever comes in whatever order: an offer is made only when no attempt may be alive, and
    /// what has ended stays ended.
    #[test]
    fn no_history_has_two_living_attempts(inputs in proptest::collection::vec(any_input(), 0..60)) {
        let mut home = Home::with_job();
        // Whether an attempt may be alive: offered and neither refused, unknown nor ended.
        let mut alive = false;
        let mut ended = false;
        // Whether the offer may have arrived without its answer coming back.
        let mut doubt = false;
        for input in inputs {
            let current = home.jobs.find(JobId::from_bits(7)).unwrap().task;
            match &input {
                Input::Refused { task, .. } | Input::UnknownTask { task }
                | Input::Ended { task, .. } if *task == current => alive = false,
                // Nothing was sent.
                Input::Unreachable { task, .. } if *task == current && !doubt
                    && matches!(home.state(), JobState::Starting { .. }) => alive = false,
                Input::StreamLost { task } if *task == current => doubt = true,
                _ => {}
            }
            home.now = home.now + Duration::from_secs(1);
            let effects = home.handle(input);
            if offers(&effects) > 0 {
                prop_assert!(!alive);
                alive = true;
                doubt = false;
            }
            let ends = matches!(home.state(), JobState::Ended { .. } | JobState::Rejected { .. });
            prop_assert!(!ended || ends);
            ended = ends;
        }
    }
}

//! Whole nodes in virtual time: joining, submitting, losing the controller.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::core::control::OrderKey;
use crate::core::grant::{Grant, Refusal};
use crate::core::id::{Attempt, GpuUuid, JobId};
use crate::core::job::{JobSpec, JobState, Rejection};
use crate::core::ledger::Offer;
use crate::core::report::testing::gpu;
use crate::core::reporting::Facts;
use crate::core::request::Need;
use crate::core::task::{Command, Outcome, TaskId};
use crate::core::time::Duration;

const AT: WallTime = WallTime(1);

fn config(number: u8, seniority: Option<u64>) -> Config {
    let facts = Facts {
        name: format!("n{number}"),
        labels: BTreeMap::new(),
        priority: 0,
        cpus: 1,
        memory_bytes: 0,
        software: "test".into(),
    };
    let listen = if seniority == Some(0) { Duration::ZERO } else { Duration::from_secs(3) };
    Config {
        key: Key::from_seed(&[number + 1; 32]),
        incarnation: Incarnation(1),
        term: Term(0),
        seniority,
        rights: Rights::ALL,
        facts,
        bootstrap: Vec::new(),
        remembered: Vec::new(),
        seed: [number; 32],
        election: election::Config { listen, ..election::Config::default() },
        controller: controller::Config::default(),
        ledger: ledger::Config::default(),
    }
}

/// Nodes that are all linked; messages take a millisecond, disks and tasks no time.
struct Mesh {
    nodes: BTreeMap<NodeId, Node>,
    ids: Vec<NodeId>,
    queue: VecDeque<(Instant, NodeId, Input)>,
    now: Instant,
    /// Tasks that hold a lease: where, and which GPUs.
    running: BTreeMap<TaskId, (NodeId, Vec<GpuUuid>)>,
    offers: u64,
}

impl Mesh {
    fn new(gpus: &[usize]) -> Self {
        let mut mesh = Self {
            nodes: BTreeMap::new(),
            ids: Vec::new(),
            queue: VecDeque::new(),
            now: Instant::from_nanos(1_000_000_000),
            running: BTreeMap::new(),
            offers: 0,
        };
        for (number, gpus) in gpus.iter().enumerate() {
            let number = u8::try_from(number).unwrap();
            let node = Node::new(config(number, (number == 0).then_some(0)), mesh.now);
            let id = node.id();
            mesh.nodes.insert(id, node);
            let own = (0..*gpus).map(|i| gpu(&format!("{number}-{i}"), "A100", 80)).collect();
            mesh.input(id, Input::Inventory(own, None));
            for other in mesh.ids.clone() {
                mesh.input(id, Input::Linked(other));
                mesh.input(other, Input::Linked(id));
            }
            mesh.ids.push(id);
            mesh.run(Duration::from_secs(2));
        }
        mesh
    }

    fn input(&mut self, at: NodeId, input: Input) {
        let mut out = Outbox::new();
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.handle(input, self.now, AT, &mut out);
        for effect in out.drain() {
            self.perform(at, effect);
        }
    }

    fn later(&mut self, at: NodeId, input: Input) {
        self.queue.push_back((self.now + Duration::from_millis(1), at, input));
    }

    fn perform(&mut self, at: NodeId, effect: Effect) {
        match effect {
            Effect::Send(to, message) => self.later(to, Input::Received(at, message)),
            Effect::StoreTerm(term) => self.later(at, Input::TermStored(term)),
            Effect::Job(job::Effect::Store(record)) => {
                let ended = matches!(record.state, JobState::Ended { .. });
                let stored = job::Input::Stored { job: record.spec.id, ended };
                self.later(at, Input::Job(stored));
            }
            Effect::Job(job::Effect::Offer { grant, .. }) => {
                self.offers += 1;
                let to = grant.value().node;
                let offer = Offer {
                    offer: self.offers,
                    from: at,
                    may_submit: true,
                    owner: "o".into(),
                    name: "n".into(),
                    follows: self.nodes.get(&to).and_then(|node| node.election().reign()),
                    at: AT,
                    grant,
                };
                self.later(to, Input::Ledger(ledger::Input::Offer(Box::new(offer))));
            }
            Effect::Ledger(ledger::Effect::Accept { lease, .. }) => {
                let gpus: Vec<GpuUuid> = lease.gpus.iter().map(|(gpu, _)| gpu.clone()).collect();
                for (_, held) in self.running.values() {
                    assert!(!gpus.iter().any(|gpu| held.contains(gpu)), "a GPU is taken twice");
                }
                self.running.insert(lease.task, (at, gpus));
                let accepted = job::Input::Accepted { task: lease.task, since: AT };
                self.later(lease.home, Input::Job(accepted));
            }
            Effect::Dial(to, _) if !self.nodes.contains_key(&to) => {
                self.later(at, Input::DialFailed(to));
            }
            _ => {}
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timers = self.nodes.iter().filter_map(|(id, node)| Some((node.deadline()?, *id)));
            let timer = timers.min().filter(|(at, _)| *at <= end);
            let message = self.queue.front().map(|(at, ..)| *at).filter(|at| *at <= end);
            if let Some((at, id)) = timer.filter(|(at, _)| message.is_none_or(|m| *at <= m)) {
                self.now = self.now.max(at);
                self.input(id, Input::Deadline);
            } else if message.is_some() {
                let (at, to, input) = self.queue.pop_front().unwrap();
                self.now = self.now.max(at);
                self.input(to, input);
            } else {
                break;
            }
        }
        self.now = end;
    }

    fn submit(&mut self, home: usize, job: u64, gpus: u32) {
        let spec = JobSpec {
            id: JobId::from_bits(job),
            owner: "o".into(),
            name: "n".into(),
            need: Need { gpus, ..Need::default() },
            command: Command::default(),
            submitted: AT,
        };
        let submit = job::Input::Submit(Box::new(spec));
        self.input(self.ids[home], Input::Job(submit));
    }

    fn finish(&mut self, job: u64) {
        let task = *self.running.keys().find(|task| task.job.bits() == job).unwrap();
        let (node, _) = self.running.remove(&task).unwrap();
        self.input(node, Input::Ledger(ledger::Input::Gone { task }));
        let home = *self
            .ids
            .iter()
            .find(|id| self.nodes.get(id).is_some_and(|node| node.jobs().find(task.job).is_some()))
            .unwrap();
        let outcome = Outcome::Exited { code: 0 };
        self.input(home, Input::Job(job::Input::Ended { task, outcome, at: AT }));
    }

    fn state(&self, home: usize, job: u64) -> &JobState {
        &self.nodes[&self.ids[home]].jobs().find(JobId::from_bits(job)).unwrap().state
    }

    fn kill(&mut self, number: usize) {
        let id = self.ids[number];
        self.nodes.remove(&id);
        for other in self.ids.clone() {
            self.input(other, Input::Unlinked(id));
        }
    }

    fn controllers(&self) -> Vec<NodeId> {
        let reigns = self.nodes.values().filter_map(|node| node.election().reign());
        let mut ids: Vec<NodeId> = reigns.map(|reign| reign.controller).collect();
        ids.dedup();
        ids
    }
}

#[test]
fn all_know_all_and_follow_the_founder() {
    let mesh = Mesh::new(&[2, 1, 0, 1]);
    assert_eq!(mesh.controllers(), [mesh.ids[0]]);
    for node in mesh.nodes.values() {
        assert_eq!(node.directory().alive().count(), 4);
        let places: Vec<u64> = node.directory().alive().map(|report| report.seniority).collect();
        assert!((0..4).all(|place| places.contains(&place)), "{places:?}");
    }
}

/// It elected itself, and placed its users' jobs in a mesh of its own.
#[test]
fn a_node_that_nobody_ever_admitted_reigns_over_nothing_until_somebody_does() {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut alone = Node::new(config(1, None), now);
    pass(&mut alone, &mut now, Duration::from_secs(60));
    assert!(!alone.is_admitted() && alone.election().is_vacant());
    // One that was admitted before goes on alone.
    let mut member = Node::new(config(1, Some(4)), now);
    pass(&mut member, &mut now, Duration::from_secs(60));
    assert!(member.election().is_controller());
    // And whoever is admitted may reign.
    let mut mesh = Mesh::new(&[0, 1]);
    assert!(mesh.nodes[&mesh.ids[1]].is_admitted());
    mesh.kill(0);
    mesh.run(Duration::from_secs(20));
    assert_eq!(mesh.controllers(), [mesh.ids[1]]);
}

#[test]
fn a_job_from_a_node_without_gpus_runs_and_its_gpu_is_given_on() {
    let mut mesh = Mesh::new(&[1, 0, 0]);
    mesh.submit(1, 1, 1);
    mesh.submit(2, 2, 1);
    mesh.run(Duration::from_millis(50));
    assert!(matches!(mesh.state(1, 1), JobState::Running { .. }));
    assert!(matches!(mesh.state(2, 2), JobState::Waiting { .. }));
    mesh.finish(1);
    mesh.run(Duration::from_millis(50));
    assert!(matches!(mesh.state(1, 1), JobState::Ended { .. }));
    assert!(matches!(mesh.state(2, 2), JobState::Running { .. }));
}

#[test]
fn many_short_jobs_race_for_few_gpus_and_all_end() {
    let mut mesh = Mesh::new(&[1, 1, 1, 0, 0]);
    for job in 1..=60 {
        mesh.submit((job % 5) as usize, job, 1);
    }
    for _ in 0..400 {
        mesh.run(Duration::from_millis(5));
        let done: Vec<u64> = mesh.running.keys().map(|task| task.job.bits()).collect();
        done.into_iter().for_each(|job| mesh.finish(job));
    }
    for job in 1..=60 {
        let state = mesh.state((job % 5) as usize, job);
        assert!(matches!(state, JobState::Ended { .. }), "job {job}: {state:?}");
    }
}

#[test]
fn a_killed_controller_costs_a_second_and_nothing_that_runs() {
    let mut mesh = Mesh::new(&[0, 1, 1, 0]);
    mesh.submit(3, 1, 1);
    mesh.run(Duration::from_millis(50));
    mesh.kill(0);
    mesh.submit(3, 2, 1);
    mesh.submit(2, 3, 1);
    mesh.run(Duration::from_millis(1_500));
    assert_eq!(mesh.controllers(), [mesh.ids[1]]);
    assert!(matches!(mesh.state(3, 1), JobState::Running { .. }));
    assert!(matches!(mesh.state(3, 2), JobState::Running { .. }));
    assert!(matches!(mesh.state(2, 3), JobState::Waiting { .. }));
}

/// A node of a mesh that is too large for everybody to be linked with everybody; it reigns.
fn controller_of_many(now: &mut Instant) -> (Node, Vec<NodeId>) {
    let mut nodes: Vec<Node> =
        (0..90).map(|number| Node::new(config(number, Some(number.into())), *now)).collect();
    for (number, node) in nodes.iter_mut().enumerate() {
        let addresses = Input::Addresses(vec![format!("m{number}")]);
        node.handle(addresses, *now, AT, &mut Outbox::new());
    }
    let census = Census::of(&nodes, *now);
    let ids = nodes.iter().map(Node::id).collect();
    let mut first = nodes.swap_remove(0);
    first.adopt(&census, *now, AT, &mut Outbox::new());
    pass(&mut first, now, Duration::from_secs(1));
    assert!(first.election().is_controller());
    (first, ids)
}

/// Time passes for one node whose messages reach nobody; whom it dialled.
fn pass(node: &mut Node, now: &mut Instant, span: Duration) -> Vec<NodeId> {
    let (end, mut dialled) = (*now + span, Vec::new());
    while let Some(at) = node.deadline().filter(|at| *at <= end) {
        *now = at.max(*now);
        let mut out = Outbox::new();
        node.handle(Input::Deadline, *now, AT, &mut out);
        while let Some(effect) = out.pop() {
            match effect {
                Effect::Dial(peer, _) => dialled.push(peer),
                Effect::StoreTerm(term) => {
                    node.handle(Input::TermStored(term), *now, AT, &mut out);
                }
                _ => {}
            }
        }
    }
    *now = end;
    dialled
}

#[test]
fn the_controller_of_a_large_mesh_looks_for_those_whose_link_it_lost() {
    let mut now = Instant::from_nanos(1_000_000_000);
    let (mut controller, ids) = controller_of_many(&mut now);
    let is_wanted = |id: &NodeId| controller.neighbours().wants(*id, now);
    let others = || ids.iter().copied().filter(|id| *id != controller.id());
    let finger = others().find(is_wanted).unwrap();
    let other = others().find(|id| !is_wanted(id)).unwrap();
    // One link stays, so that it does not believe itself alone.
    for input in [Input::Linked(finger), Input::Linked(other)] {
        controller.handle(input, now, AT, &mut Outbox::new());
    }
    let mut out = Outbox::new();
    controller.handle(Input::Unlinked(other), now, AT, &mut out);
    assert!(out.drain().any(|effect| matches!(effect, Effect::Dial(node, _) if node == other)));
    assert!(pass(&mut controller, &mut now, Duration::from_secs(3)).contains(&other));
}

const GUEST: Rights = Rights { node: false, submit: true };

/// It says that it has GPUs, and has a membership that does not allow it to offer any.
#[test]
fn the_gpus_of_a_member_that_may_not_run_tasks_are_nobodys() {
    let mut mesh = Mesh::new(&[0, 2, 0, 1]);
    let liar = mesh.ids[1];
    for id in mesh.ids.clone() {
        mesh.input(id, Input::Recognized(liar, GUEST));
    }
    mesh.submit(2, 1, 2);
    mesh.submit(2, 2, 1);
    mesh.run(Duration::from_millis(50));
    assert!(matches!(mesh.state(2, 1), JobState::Rejected { .. }), "{:?}", mesh.state(2, 1));
    assert!(matches!(mesh.state(2, 2), JobState::Running { .. }));
    assert!(mesh.running.values().all(|(node, _)| *node == mesh.ids[3]));
    for node in mesh.nodes.values().filter(|node| node.id() != liar) {
        let report = node.directory().get(liar).unwrap().report();
        assert_eq!((report.gpus.len(), node.offered(report).len()), (2, 0));
    }
    // And a new ticket makes it a node.
    for id in mesh.ids.clone() {
        mesh.input(id, Input::Recognized(liar, Rights::ALL));
    }
    mesh.submit(2, 3, 2);
    mesh.run(Duration::from_millis(50));
    assert!(matches!(mesh.state(2, 3), JobState::Running { .. }));
}

#[test]
fn a_member_that_may_not_run_tasks_says_so_itself_and_refuses_them() {
    let now = Instant::from_nanos(1_000_000_000);
    let guest = || Node::new(Config { rights: GUEST, ..config(7, Some(0)) }, now);
    assert_eq!(guest().report().state, NodeState::Draining);
    let grant = Grant {
        term: Term(1),
        job: JobId::from_bits(1),
        attempt: Attempt(1),
        home: guest().id(),
        node: guest().id(),
        incarnation: Incarnation(1),
        gpus: Vec::new(),
        key: OrderKey::default(),
        ttl_ms: 1_000,
    };
    let offer = Offer {
        offer: 1,
        from: guest().id(),
        may_submit: true,
        grant: Key::from_seed(&[1; 32]).sign(grant),
        owner: "o".into(),
        name: "n".into(),
        follows: None,
        at: AT,
    };
    let mut out = Outbox::new();
    guest().handle(Input::Ledger(ledger::Input::Offer(Box::new(offer))), now, AT, &mut out);
    let refusal = Refusal::NotServing;
    let refused = Effect::Ledger(ledger::Effect::Refuse { offer: 1, refusal });
    assert_eq!(out.drain().collect::<Vec<_>>(), [refused]);
}

#[test]
fn a_member_that_may_not_submit_is_told_so_by_the_controller() {
    let mut mesh = Mesh::new(&[1, 0, 0]);
    let home = mesh.ids[2];
    mesh.input(mesh.ids[0], Input::Recognized(home, Rights { node: true, submit: false }));
    mesh.submit(2, 1, 1);
    mesh.run(Duration::from_millis(50));
    let JobState::Rejected { why: Rejection::Refused { why }, .. } = mesh.state(2, 1) else {
        panic!("{:?}", mesh.state(2, 1));
    };
    assert!(why.contains("may not submit"), "{why}");
    assert!(mesh.running.is_empty());
}

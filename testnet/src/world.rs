//! Whole nodes of the core in virtual time, on one thread.
//!
//! A small world: all nodes are linked, a message takes a millisecond of virtual time, nothing is
//! ever lost but by killing a node. It is what `testnet` is without its feature `live`: one run,
//! checked for the property that matters most, that no GPU is ever leased twice.

use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;

use gpuvine::core::id::{GpuUuid, Incarnation, JobId, NodeId, Term};
use gpuvine::core::job::{self, JobSpec, JobState};
use gpuvine::core::ledger::{self, Offer};
use gpuvine::core::node::{Config, Effect, Input, Node};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::report::{Gpu, GpuHealth};
use gpuvine::core::reporting::Facts;
use gpuvine::core::request::Need;
use gpuvine::core::signed::Key;
use gpuvine::core::task::{Command, Outcome, TaskId};
use gpuvine::core::time::{Duration, Instant, WallTime};
use gpuvine::core::{controller, election, ledger as ledger_core};

/// How long a message travels.
const LATENCY: Duration = Duration::from_millis(1);

/// How long a task runs.
const TASK: Duration = Duration::from_millis(7);

/// Nodes, messages on their way, and tasks that run.
#[derive(Debug)]
pub struct World {
    nodes: BTreeMap<NodeId, Node>,
    /// Ids in the order of joining.
    pub ids: Vec<NodeId>,
    queue: VecDeque<(Instant, NodeId, Input)>,
    ends: BTreeMap<(Instant, TaskId), NodeId>,
    running: BTreeMap<TaskId, Vec<GpuUuid>>,
    now: Instant,
    offers: u64,
    /// What should never have happened.
    pub violations: Vec<String>,
}

impl World {
    /// A mesh of nodes with so many GPUs each, joined one after the other.
    pub fn new(gpus: &[usize], seed: u8) -> Self {
        let mut world = Self {
            nodes: BTreeMap::new(),
            ids: Vec::new(),
            queue: VecDeque::new(),
            ends: BTreeMap::new(),
            running: BTreeMap::new(),
            now: Instant::from_nanos(1_000_000_000),
            offers: 0,
            violations: Vec::new(),
        };
        for (number, count) in gpus.iter().enumerate() {
            let node = Node::new(config(number, seed), world.now);
            let id = node.id();
            world.nodes.insert(id, node);
            let own = (0..*count).map(|index| gpu(number, index)).collect();
            world.input(id, Input::Inventory(own, None));
            for other in world.ids.clone() {
                world.input(id, Input::Linked(other));
                world.input(other, Input::Linked(id));
            }
            world.ids.push(id);
            world.run(Duration::from_secs(2));
        }
        world
    }

    /// Submits a job of this number on a node.
    pub fn submit(&mut self, home: usize, job: u64, gpus: u32) {
        let spec = JobSpec {
            id: JobId::from_bits(job),
            owner: "user".into(),
            name: format!("job {job}"),
            need: Need { gpus, ..Need::default() },
            command: Command::default(),
            submitted: WallTime(job),
        };
        let submit = job::Input::Submit(Box::new(spec));
        self.input(self.ids[home], Input::Job(submit));
    }

    /// Kills a node: its links break, its tasks' GPUs are nobody's concern any more.
    pub fn kill(&mut self, number: usize) {
        let id = self.ids[number];
        self.nodes.remove(&id);
        for other in self.ids.clone() {
            self.input(other, Input::Unlinked(id));
        }
    }

    /// How many jobs of living homes have ended, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let jobs = || self.nodes.values().flat_map(|node| node.jobs().iter());
        let ended = jobs().filter(|record| matches!(record.state, JobState::Ended { .. })).count();
        (ended, jobs().count())
    }

    /// Lets virtual time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step(at);
        }
        self.now = end;
    }

    fn next(&self) -> Option<Instant> {
        let timers = self.nodes.values().filter_map(Node::deadline).min();
        let message = self.queue.front().map(|(at, ..)| *at);
        let end = self.ends.keys().next().map(|(at, _)| *at);
        [timers, message, end].into_iter().flatten().min()
    }

    fn step(&mut self, at: Instant) {
        if let Some((_, task)) = self.ends.keys().next().copied().filter(|(end, _)| *end <= at) {
            if let Some(node) = self.ends.remove(&(at, task)) {
                self.end(node, task);
            }
        } else if self.queue.front().is_some_and(|(due, ..)| *due <= at) {
            if let Some((_, to, input)) = self.queue.pop_front() {
                self.input(to, input);
            }
        } else {
            let due = self.nodes.iter().find(|(_, node)| node.deadline() <= Some(at));
            let due = due.filter(|(_, node)| node.deadline().is_some()).map(|(id, _)| *id);
            if let Some(id) = due {
                self.input(id, Input::Deadline);
            }
        }
    }

    fn end(&mut self, node: NodeId, task: TaskId) {
        self.running.remove(&task);
        self.input(node, Input::Ledger(ledger::Input::Gone { task }));
        let home =
            self.ids.iter().copied().find(|id| {
                self.nodes.get(id).is_some_and(|node| node.jobs().find(task.job).is_some())
            });
        if let Some(home) = home {
            let outcome = Outcome::Exited { code: 0 };
            let ended = job::Input::Ended { task, outcome, at: WallTime(0) };
            self.later(home, Input::Job(ended));
        }
    }

    fn input(&mut self, at: NodeId, input: Input) {
        let mut out = Outbox::new();
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.handle(input, self.now, WallTime(0), &mut out);
        for effect in out.drain() {
            self.perform(at, effect);
        }
    }

    fn later(&mut self, to: NodeId, input: Input) {
        self.queue.push_back((self.now + LATENCY, to, input));
    }

    fn perform(&mut self, at: NodeId, effect: Effect) {
        match effect {
            Effect::Send(to, message) => self.later(to, Input::Received(at, message)),
            Effect::StoreTerm(term) => self.later(at, Input::TermStored(term)),
            Effect::Dial(to, _) if !self.nodes.contains_key(&to) => {
                self.later(at, Input::DialFailed(to));
            }
            Effect::Job(job::Effect::Store(record)) => {
                let ended = matches!(record.state, JobState::Ended { .. });
                let stored = job::Input::Stored { job: record.spec.id, ended };
                self.later(at, Input::Job(stored));
            }
            Effect::Job(job::Effect::Offer { grant, .. }) => {
                self.offers += 1;
                let to = grant.value().node;
                let follows = self.nodes.get(&to).and_then(|node| node.election().reign());
                let offer = Offer {
                    offer: self.offers,
                    from: at,
                    may_submit: true,
                    grant,
                    owner: "user".into(),
                    name: "job".into(),
                    follows,
                    at: WallTime(0),
                };
                self.later(to, Input::Ledger(ledger::Input::Offer(Box::new(offer))));
            }
            Effect::Ledger(ledger::Effect::Accept { lease, .. }) => self.start(at, &lease),
            _ => {}
        }
    }

    fn start(&mut self, at: NodeId, lease: &ledger::LeaseRecord) {
        let gpus: Vec<GpuUuid> = lease.gpus.iter().map(|(gpu, _)| gpu.clone()).collect();
        for (other, held) in &self.running {
            if let Some(gpu) = gpus.iter().find(|gpu| held.contains(gpu)) {
                let (task, other) = (lease.task, *other);
                self.violations.push(format!("{gpu} is leased to {task} while {other} has it"));
            }
        }
        self.running.insert(lease.task, gpus);
        self.ends.insert((self.now + TASK, lease.task), at);
        let accepted = job::Input::Accepted { task: lease.task, since: WallTime(0) };
        self.later(lease.home, Input::Job(accepted));
    }
}

fn config(number: usize, seed: u8) -> Config {
    let byte = u8::try_from(number + 1).unwrap_or(u8::MAX);
    let facts = Facts {
        name: format!("n{number}"),
        labels: BTreeMap::new(),
        priority: 0,
        cpus: 1,
        memory_bytes: 0,
        software: "simulated".into(),
    };
    let founder = number == 0;
    let listen = if founder { Duration::ZERO } else { Duration::from_secs(3) };
    Config {
        key: Key::from_seed(&[byte; 32]),
        incarnation: Incarnation(1),
        term: Term(0),
        seniority: founder.then_some(0),
        facts,
        bootstrap: Vec::new(),
        seed: [seed ^ byte; 32],
        election: election::Config { listen, ..election::Config::default() },
        controller: controller::Config::default(),
        ledger: ledger_core::Config::default(),
    }
}

fn gpu(node: usize, index: usize) -> Gpu {
    Gpu {
        uuid: GpuUuid(format!("GPU-{node}-{index}")),
        index: u32::try_from(index).unwrap_or(u32::MAX),
        model: "A100".into(),
        memory_bytes: 80 << 30,
        memory_free_bytes: 80 << 30,
        utilization: None,
        health: GpuHealth::Usable,
        seq: gpuvine::core::id::LeaseSeq(0),
        lease: None,
    }
}

/// One run: twenty homes race for three GPUs, and the controller is killed in the middle.
pub fn race(seed: u8) -> World {
    let gpus: Vec<usize> = (0..20).map(|node| usize::from((1..=3).contains(&node))).collect();
    let mut world = World::new(&gpus, seed);
    for job in 0..200 {
        world.submit(4 + (job % 16) as usize, job, 1);
    }
    world.run(Duration::from_millis(200));
    world.kill(0);
    world.run(Duration::from_secs(10));
    world
}

/// Runs the race and answers whether it went as it should.
pub fn main() -> ExitCode {
    let world = race(1);
    let (ended, all) = world.progress();
    if world.violations.is_empty() && ended == all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_through_a_failover_leases_no_gpu_twice_and_ends_every_job() {
        for seed in 0..4 {
            let world = race(seed);
            assert!(world.violations.is_empty(), "seed {seed}: {:?}", world.violations);
            assert_eq!(world.progress(), (200, 200), "seed {seed}");
        }
    }
}

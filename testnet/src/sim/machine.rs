//! One simulated machine: a clock, a disk, GPUs, processes, and a daemon when one runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gpuvine::core::id::{GpuUuid, JobId, LeaseSeq, NodeId};
use gpuvine::core::ledger::LeaseRecord;
use gpuvine::core::node::Node;
use gpuvine::core::report::{Gpu, GpuHealth};
use gpuvine::core::request::Need;
use gpuvine::core::signed::Key;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::{Duration, Instant, WallTime};

use super::disk::{Disk, Image};
use super::network::LinkId;
use super::streams::{First, StreamId};
use super::world::Event;

/// A task's processes.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) lease: LeaseRecord,
    pub(crate) temper: Temper,
    /// How the command ended, once it has.
    pub(crate) ended: Option<Outcome>,
    pub(crate) told_to_stop: bool,
    pub(crate) stuck: bool,
}

/// How a task's processes behave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Temper {
    pub(crate) runs: Duration,
    pub(crate) code: i32,
    pub(crate) ignores_term: bool,
    /// Children live on for so long after the command.
    pub(crate) lingers: Duration,
    /// For how long SIGKILL does nothing.
    pub(crate) unkillable: Duration,
}

/// A stream that is being opened, or waits for a link to be opened on.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) number: u64,
    /// The home that wants it.
    pub(crate) home: u64,
    pub(crate) task: TaskId,
    pub(crate) node: NodeId,
    pub(crate) first: First,
    pub(crate) on: On,
}

/// Where a stream is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Nowhere yet: there is no link.
    Nothing,
    /// On a link, since then.
    Link(LinkId, Instant),
    /// Within the machine.
    Here,
}

/// The home's side of one job: `daemon::home`, which holds one stream at a time.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// A stop that was ordered: said again on every new stream.
    pub(crate) stop: Option<bool>,
    pub(crate) stream: Option<StreamId>,
    /// The latest task that it had a stream for.
    pub(crate) latest: Option<TaskId>,
    /// Streams for it that are being opened.
    pub(crate) openings: usize,
    /// Nobody orders anything any more: it ends with the last opening.
    pub(crate) let_go: bool,
}

/// What a daemon knows and forgets when it is killed.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Offers that the ledger has not answered: by which stream they came.
    pub(crate) offers: BTreeMap<u64, StreamId>,
    pub(crate) offers_made: u64,
    pub(crate) homes: BTreeMap<u64, Home>,
    pub(crate) homes_made: u64,
    /// The homes of jobs that have not ended.
    pub(crate) home_of: BTreeMap<JobId, u64>,
    pub(crate) openings: Vec<Opening>,
    /// Tasks that are being started, and streams that wait for that.
    pub(crate) starting: BTreeMap<TaskId, Vec<(StreamId, bool)>>,
    /// Tasks that run or have ended here.
    pub(crate) hosted: BTreeMap<TaskId, Hosted>,
    /// Of those that have ended the ones whose homes do not know it yet, and do; the oldest first.
    pub(crate) unheard: VecDeque<TaskId>,
    pub(crate) heard: VecDeque<TaskId>,
}

/// A task that streams may be about.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    pub(crate) home: NodeId,
    pub(crate) ended: Option<(Outcome, WallTime)>,
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) id: NodeId,
    pub(crate) key: Key,
    /// The daemon's core, while it runs.
    pub(crate) node: Option<Node>,
    /// Starts of the daemon, and of the machine.
    pub(crate) life: u32,
    pub(crate) boot: u32,
    pub(crate) memory: Memory,
    /// When the node's timer is due, as it was last put on the agenda.
    pub(crate) timer: Option<Instant>,
    /// Never seen again.
    pub(crate) gone_for_good: bool,
    /// Stopped by SIGSTOP, or asleep: what happens meanwhile waits.
    pub(crate) frozen: bool,
    pub(crate) asleep: bool,
    pub(crate) held: VecDeque<Event>,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    pub(crate) old_disk: Option<Image>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) gone_gpus: BTreeSet<GpuUuid>,
    pub(crate) processes: BTreeMap<TaskId, Process>,
    /// Task folders whose task has ended: what a restarted daemon finds.
    pub(crate) endings: BTreeMap<TaskId, (LeaseRecord, Outcome, WallTime)>,
}

impl Machine {
    pub(crate) fn new(index: usize, gpus: usize) -> Self {
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&(index as u64 + 1).to_le_bytes());
        let key = Key::from_seed(&seed);
        Self {
            id: key.id(),
            key,
            node: None,
            life: 0,
            boot: 1,
            memory: Memory::default(),
            timer: None,
            gone_for_good: false,
            frozen: false,
            asleep: false,
            held: VecDeque::new(),
            clock: Clock::default(),
            disk: Disk::default(),
            old_disk: None,
            gpus: (0..gpus).map(|gpu| new_gpu(index, gpu)).collect(),
            gone_gpus: BTreeSet::new(),
            processes: BTreeMap::new(),
            endings: BTreeMap::new(),
        }
    }

    /// A new machine with the identity of another.
    pub(crate) fn twin(index: usize, gpus: usize, of: &Self) -> Self {
        Self { id: of.id, key: of.key.clone(), ..Self::new(index, gpus) }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// Whether it could ever run such a task.
    pub(crate) fn could_fill(&self, need: &Need) -> bool {
        let is_it = |gpu: &&Gpu| {
            let model = gpu.model.to_ascii_lowercase();
            need.model.as_ref().is_none_or(|wanted| model.contains(&wanted.to_ascii_lowercase()))
        };
        need.node.is_none_or(|node| node == self.id)
            && self.gpus.iter().filter(is_it).count() >= need.gpus as usize
    }

    /// The GPUs that the driver shows now.
    pub(crate) fn inventory(&self) -> Vec<Gpu> {
        self.gpus.iter().filter(|gpu| !self.gone_gpus.contains(&gpu.uuid)).cloned().collect()
    }
}

fn new_gpu(machine: usize, index: usize) -> Gpu {
    // Two kinds, so that needs differ.
    let (model, memory) = if machine.is_multiple_of(3) { ("H100", 80) } else { ("A100", 40) };
    Gpu {
        uuid: GpuUuid(format!("GPU-{machine}-{index}")),
        index: u32::try_from(index).unwrap_or(u32::MAX),
        model: model.into(),
        memory_bytes: memory << 30,
        memory_free_bytes: memory << 30,
        utilization: None,
        health: GpuHealth::Usable,
        seq: LeaseSeq(0),
        lease: None,
    }
}

/// A machine's own clock: it begins anywhere and runs at a rate of its own, but it counts suspend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: Instant,
    base: Instant,
    /// Millionths by which it is fast.
    drift: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { begun: Instant::ZERO, base: Instant::from_nanos(1_000_000_000), drift: 0 }
    }
}

impl Clock {
    /// A clock that shows `base` at `now`.
    pub(crate) fn new(now: Instant, base: Instant, drift: i64) -> Self {
        Self { begun: now, base, drift }
    }

    /// What it shows.
    pub(crate) fn local(&self, now: Instant) -> Instant {
        let elapsed = i128::from(now.since(self.begun).as_nanos() as u64);
        self.base + nanos(elapsed + elapsed * i128::from(self.drift) / 1_000_000)
    }

    /// When it shows that, or just after.
    pub(crate) fn global(&self, local: Instant) -> Instant {
        let elapsed = i128::from(local.since(self.base).as_nanos() as u64);
        self.begun + nanos(elapsed * 1_000_000 / (1_000_000 + i128::from(self.drift)) + 1)
    }
}

fn nanos(count: i128) -> Duration {
    Duration::from_nanos(u64::try_from(count.max(0)).unwrap_or(u64::MAX))
}

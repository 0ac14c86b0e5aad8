//! Decides whether a GPU is taken: the only place that may say so.
//!
//! A node is the only authority over its own GPUs. A grant is a recommendation; the lease is made
//! here, before anything starts, by compare and swap: the grant names the lease number of each GPU
//! that the controller saw, and it must still be the GPU's number. So one grant is worth at most
//! one lease. Two controllers at once can make a home ask again; they cannot put two tasks on one
//! GPU.
//!
//! A lease ends when the task's processes are gone, all of them. What SIGKILL does not end puts its
//! GPUs, not the node, into quarantine until it does.
//!
//! In: grants that homes present, news of tasks, what GPUs the machine has. Out: yes or no to each
//! offer, and the news that leases changed.
//! Always true: a GPU has at most one lease; its number only grows; a lease is never ended by time.

mod given_up;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

pub use self::given_up::Trace;
use self::slots::Slot;
use super::grant::{Grant, Refusal};
use super::id::{Attempt, GpuUuid, Incarnation, JobId, LeaseSeq, NodeId, Reign};
use super::outbox::Outbox;
use super::report::{Gpu, GpuHealth, LeaseState, LeaseView, NodeState, clip};
use super::signed::Signed;
use super::task::TaskId;
use super::time::WallTime;

/// Jobs whose latest attempt is remembered after it has ended.
const ATTEMPTS_MAX: usize = 4_096;

/// How a ledger behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Tasks that may have a lease at once.
    pub tasks_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { tasks_max: 256 }
    }
}

/// A lease as it is kept beside its task, so that a restarted daemon finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Whose it is.
    pub task: TaskId,
    /// The GPUs, each with the number of this lease.
    pub gpus: Vec<(GpuUuid, LeaseSeq)>,
    /// The job's home.
    pub home: NodeId,
    /// The job's owner.
    pub owner: String,
    /// The job's name.
    pub name: String,
    /// When it was made, for people.
    pub since: WallTime,
}

/// What the ledger is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The home of a task has its outcome.
    Acknowledged {
        /// The task.
        task: TaskId,
    },
    /// A task of before this start of the daemon is still alive.
    Adopt(LeaseRecord),
    /// The task's command has ended or was told to end; its processes may be alive.
    CommandEnded {
        /// The task.
        task: TaskId,
    },
    /// This attempt will never be accepted here: its home was told that it is not known.
    Forswear {
        /// The task.
        task: TaskId,
    },
    /// The task has ended, its home has not asked how, and it is not kept any longer.
    GivenUp {
        /// The task.
        task: TaskId,
        /// The job's home.
        home: NodeId,
    },
    /// No process of the task is left, or none was ever started.
    Gone {
        /// The task.
        task: TaskId,
    },
    /// The number of this start, should it have to be raised.
    Incarnation(Incarnation),
    /// The GPUs that the machine has now.
    Inventory(Vec<Gpu>),
    /// A home presents a grant.
    Offer(Box<Offer>),
    /// The node takes tasks, or not.
    State(NodeState),
    /// The task's process runs.
    Started {
        /// The task.
        task: TaskId,
    },
    /// SIGKILL did not end the task's processes.
    Stuck {
        /// The task.
        task: TaskId,
        /// What is left, for people.
        why: String,
    },
}

/// A grant that is presented to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Names the offer in the answer.
    pub offer: u64,
    /// Who presents it.
    pub from: NodeId,
    /// Whether that member may submit.
    pub may_submit: bool,
    /// The grant.
    pub grant: Signed<Grant>,
    /// The job's owner.
    pub owner: String,
    /// The job's name.
    pub name: String,
    /// The reign that this node follows.
    pub follows: Option<Reign>,
    /// The time, for people.
    pub at: WallTime,
}

/// What the ledger wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The lease is made: start the task.
    Accept {
        /// The offer.
        offer: u64,
        /// The lease.
        lease: LeaseRecord,
        /// The GPUs, with their indices.
        gpus: Vec<(GpuUuid, u32)>,
    },
    /// Leases or GPUs have changed: the report is another.
    Changed,
    /// No lease.
    Refuse {
        /// The offer.
        offer: u64,
        /// Why.
        refusal: Refusal,
    },
    /// The same task was accepted before: it runs, or did. Starting is idempotent.
    Resume {
        /// The offer.
        offer: u64,
        /// The task.
        task: TaskId,
    },
}

/// The leases of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    me: NodeId,
    incarnation: Incarnation,
    config: Config,
    state: NodeState,
    slots: BTreeMap<GpuUuid, Slot>,
    /// The number that new slots begin with: higher than those of all that were given up, so that
    /// what comes back under an old name is not leased by a grant from before.
    floor: LeaseSeq,
    leases: BTreeMap<TaskId, Lease>,
    /// The latest attempt of each job, and the order in which jobs were met.
    attempts: BTreeMap<JobId, Attempt>,
    met: VecDeque<JobId>,
    /// Tasks whose outcome was given up, the oldest first, and their homes.
    given_up: VecDeque<(TaskId, NodeId)>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    record: LeaseRecord,
    state: LeaseState,
    stuck: Option<String>,
}

impl Ledger {
    /// An empty ledger of this start of the node.
    pub fn new(me: NodeId, incarnation: Incarnation, config: Config) -> Self {
        Self {
            me,
            incarnation,
            config,
            state: NodeState::Serving,
            slots: BTreeMap::new(),
            floor: LeaseSeq(0),
            leases: BTreeMap::new(),
            attempts: BTreeMap::new(),
            met: VecDeque::new(),
            given_up: VecDeque::new(),
        }
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, out: &mut Outbox<Effect>) {
        match input {
            Input::Acknowledged { task } => self.on_acknowledged(task),
            Input::Adopt(record) => self.on_adopt(record, out),
            Input::CommandEnded { task } => self.on_state(task, LeaseState::Draining, out),
            Input::Forswear { task } => self.on_forswear(task),
            Input::GivenUp { task, home } => self.on_given_up(task, home),
            Input::Gone { task } => self.on_gone(task, out),
            Input::Incarnation(incarnation) => self.incarnation = incarnation,
            Input::Inventory(gpus) => self.on_inventory(gpus, out),
            Input::Offer(offer) => self.on_offer(&offer, out),
            Input::State(state) => self.state = state,
            Input::Started { task } => self.on_state(task, LeaseState::Running, out),
            Input::Stuck { task, why } => self.on_stuck(task, &why, out),
        }
        self.check();
    }

    /// The GPUs as the report shows them, in the order of their indices. Those that have vanished
    /// since the daemon started are among them.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus: Vec<Gpu> = self.slots.values().map(|slot| self.show(slot)).collect();
        gpus.sort_by(|a, b| (a.index, &a.uuid).cmp(&(b.index, &b.uuid)));
        gpus
    }

    /// The tasks without a GPU as the report shows them.
    pub fn gpuless(&self) -> Vec<LeaseView> {
        self.leases.values().filter(|lease| lease.record.gpus.is_empty()).map(Lease::view).collect()
    }

    /// Whether a task has a lease.
    pub fn has(&self, task: TaskId) -> bool {
        self.leases.contains_key(&task)
    }

    /// How many jobs' latest attempts are remembered.
    pub fn attempts(&self) -> usize {
        self.attempts.len()
    }

    /// How many tasks have a lease.
    pub fn tasks(&self) -> usize {
        self.leases.len()
    }

    fn show(&self, slot: &Slot) -> Gpu {
        let lease = slot.lease.and_then(|task| self.leases.get(&task));
        let stuck = lease.and_then(|lease| lease.stuck.clone());
        let health = match stuck {
            Some(why) => GpuHealth::Quarantined(why),
            None if !slot.present => {
                GpuHealth::Broken("the driver does not show it any more".into())
            }
            None => slot.gpu.health.clone(),
        };
        Gpu { health, seq: slot.seq, lease: lease.map(Lease::view), ..slot.gpu.clone() }
    }

    fn on_offer(&mut self, offer: &Offer, out: &mut Outbox<Effect>) {
        let grant = offer.grant.value();
        let task = TaskId { job: grant.job, attempt: grant.attempt };
        // The same home again with what was accepted already: its answer was lost.
        let again = self.leases.get(&task).is_some_and(|lease| {
            lease.record.home == offer.from && grant.home == offer.from && grant.node == self.me
        });
        if again {
            out.push(Effect::Resume { offer: offer.offer, task });
            return;
        }
        if let Err(refusal) = self.admit(offer) {
            out.push(Effect::Refuse { offer: offer.offer, refusal });
            return;
        }
        let mut gpus = Vec::new();
        let mut leased = Vec::new();
        for (uuid, _) in &grant.gpus {
            if let Some(slot) = self.slots.get_mut(uuid) {
                slot.seq = slot.seq.next();
                slot.lease = Some(task);
                gpus.push((uuid.clone(), slot.gpu.index));
                leased.push((uuid.clone(), slot.seq));
            }
        }
        let record = LeaseRecord {
            task,
            gpus: leased,
            home: offer.from,
            owner: clip(&offer.owner),
            name: clip(&offer.name),
            since: offer.at,
        };
        let lease = Lease { record: record.clone(), state: LeaseState::Starting, stuck: None };
        self.leases.insert(task, lease);
        self.remember(task);
        out.push(Effect::Accept { offer: offer.offer, lease: record, gpus });
        out.push(Effect::Changed);
    }

    /// Whether an offer may have a lease now.
    fn admit(&self, offer: &Offer) -> Result<(), Refusal> {
        let grant = offer.grant.value();
        if grant.node != self.me {
            return Err(Refusal::OtherNode);
        }
        if grant.incarnation != self.incarnation {
            return Err(Refusal::OtherIncarnation);
        }
        if grant.home != offer.from {
            return Err(Refusal::OtherHome);
        }
        if !offer.may_submit {
            return Err(Refusal::MayNotSubmit);
        }
        // The same attempt again is refused too, once it has ended: it was started already. This is
        // said before anything else that may be wrong by now: any other refusal tells the home that
        // the attempt never began here.
        if let Some(latest) = self.attempts.get(&grant.job).filter(|a| **a >= grant.attempt) {
            return Err(Refusal::OldAttempt { latest: *latest });
        }
        if let Some(follows) = offer.follows {
            if grant.term < follows.term {
                return Err(Refusal::OldTerm { newest: follows.term });
            }
            // The lower of two reigns of one term. The higher one is honoured, as one of a later
            // term is: it will be followed, and a refusal must not become a yes.
            if grant.term == follows.term && offer.grant.signer() < follows.controller {
                return Err(Refusal::NotController);
            }
        }
        if self.state != NodeState::Serving {
            return Err(Refusal::NotServing);
        }
        if self.leases.len() >= self.config.tasks_max as usize {
            return Err(Refusal::TooManyTasks { limit: self.config.tasks_max });
        }
        let mut named = Vec::new();
        for (uuid, seq) in &grant.gpus {
            let unknown = || Refusal::UnknownGpu { gpu: uuid.clone() };
            let slot = self.slots.get(uuid).ok_or_else(unknown)?;
            if slot.lease.is_some() || slot.seq != *seq || named.contains(&uuid) {
                return Err(Refusal::Taken { gpu: uuid.clone() });
            }
            if let GpuHealth::Broken(why) | GpuHealth::Quarantined(why) = self.show(slot).health {
                return Err(Refusal::Unusable { gpu: uuid.clone(), why });
            }
            named.push(uuid);
        }
        Ok(())
    }

    /// Remembers the latest attempt of a job; of jobs without a lease only the last so many.
    fn remember(&mut self, task: TaskId) {
        if self.attempts.insert(task.job, task.attempt).is_none() {
            self.met.push_back(task.job);
        }
        let leased = |job: &JobId, leases: &BTreeMap<TaskId, Lease>| {
            leases.keys().any(|task| task.job == *job)
        };
        // At most as many turns as there are jobs: those that are alive go to the back.
        for _ in 0..self.met.len() {
            if self.met.len() <= ATTEMPTS_MAX {
                break;
            }
            let Some(job) = self.met.pop_front() else { break };
            if leased(&job, &self.leases) {
                self.met.push_back(job);
            } else {
                self.attempts.remove(&job);
            }
        }
    }

    fn on_forswear(&mut self, task: TaskId) {
        let latest = self.attempts.get(&task.job).copied();
        if !self.leases.contains_key(&task) && latest.is_none_or(|latest| latest < task.attempt) {
            self.remember(task);
        }
    }

    fn on_adopt(&mut self, record: LeaseRecord, out: &mut Outbox<Effect>) {
        let task = record.task;
        if self.leases.contains_key(&task) {
            return;
        }
        for (uuid, seq) in &record.gpus {
            let slot = self.slot(uuid);
            // Its number only grows, whatever was known of it.
            slot.seq = slot.seq.max(*seq);
            slot.lease = slot.lease.or(Some(task));
        }
        self.remember(task);
        self.leases.insert(task, Lease { record, state: LeaseState::Running, stuck: None });
        out.push(Effect::Changed);
    }

    fn on_state(&mut self, task: TaskId, state: LeaseState, out: &mut Outbox<Effect>) {
        // A late or repeated notice never takes a lease back to an earlier state.
        let Some(lease) = self.leases.get_mut(&task) else { return };
        let forward = (lease.state == LeaseState::Starting && state != LeaseState::Starting)
            || (lease.state == LeaseState::Running && state == LeaseState::Draining);
        if forward {
            lease.state = state;
            out.push(Effect::Changed);
        }
    }

    fn on_gone(&mut self, task: TaskId, out: &mut Outbox<Effect>) {
        if self.leases.remove(&task).is_none() {
            return;
        }
        for (uuid, slot) in self.slots.iter_mut().filter(|(_, slot)| slot.lease == Some(task)) {
            // Leases that were adopted may overlap, if a folder was tampered with: the GPU is free
            // when the last of them has ended.
            let other = self.leases.iter().find(|(_, lease)| lease.has(uuid));
            slot.lease = other.map(|(task, _)| *task);
        }
        out.push(Effect::Changed);
    }

    fn on_stuck(&mut self, task: TaskId, why: &str, out: &mut Outbox<Effect>) {
        if let Some(lease) = self.leases.get_mut(&task) {
            lease.state = LeaseState::Draining;
            lease.stuck = Some(clip(why));
            out.push(Effect::Changed);
        }
    }

    fn check(&self) {
        if cfg!(debug_assertions) {
            for (uuid, slot) in &self.slots {
                if let Some(task) = slot.lease {
                    let lease = self.leases.get(&task);
                    debug_assert!(
                        lease.is_some_and(|lease| lease.has(uuid)),
                        "{uuid} is leased to a task that does not have it"
                    );
                }
            }
        }
    }
}

impl Lease {
    fn has(&self, gpu: &GpuUuid) -> bool {
        self.record.gpus.iter().any(|(uuid, _)| uuid == gpu)
    }

    fn view(&self) -> LeaseView {
        let record = &self.record;
        LeaseView {
            job: record.task.job,
            attempt: record.task.attempt,
            name: record.name.clone(),
            owner: record.owner.clone(),
            home: record.home,
            since: record.since,
            state: self.state,
        }
    }
}

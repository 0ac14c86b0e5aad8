//! A node: its ledger, the processes of tasks, and the thin hands between them, as `daemon::host`,
//! `daemon::launch` and the keepers.

mod streams;

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::grant::Refusal;
use gpuvine::core::id::{GpuUuid, Incarnation, LeaseSeq, NodeId};
use gpuvine::core::ledger::{Config, Input, LeaseRecord, Ledger};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::report::{Gpu, Report};
use gpuvine::core::task::{Outcome, TaskId};

use super::cast::{Cast, NODES, report};
use super::note::{Answer, Note, Stream};
use super::sabotage::Sabotage;
use super::sights;
use crate::exhaustive::checker::Sights;
use crate::sim::invariants::Violation;

/// What can happen at a node. Notes are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A note of a home arrives.
    Hear(u32),
    /// The grant of an offer is presented by the other home, or at the other node.
    Steal { note: u32, home: u8 },
    /// A task that was accepted begins.
    Spawn(TaskId),
    /// It cannot begin.
    SpawnFails(TaskId),
    /// All processes of a task are gone.
    End(TaskId),
    /// The daemon is killed and started again.
    Crash,
    /// The machine loses power and is started again.
    Reboot,
    /// A reign is followed.
    Follow(u8),
}

/// What the models' actions do to a node, and what it says.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) cast: &'a Cast,
    pub(super) notes: Vec<Note>,
    pub(super) sights: Sights,
}

impl<'a> Turn<'a> {
    pub(super) fn new(cast: &'a Cast) -> Self {
        Self { cast, notes: Vec::new(), sights: Sights::default() }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    number: u8,
    ledger: Ledger,
    incarnation: Incarnation,
    follows: Option<u8>,
    /// Tasks with a lease that have not begun, and who waits for that.
    starting: BTreeMap<TaskId, (LeaseRecord, Vec<(Stream, Answer)>)>,
    /// Tasks that are alive. They do not notice what becomes of the daemon.
    processes: BTreeMap<TaskId, LeaseRecord>,
    /// On disk: outcomes that no home has acknowledged.
    endings: BTreeMap<TaskId, (NodeId, Outcome)>,
    /// Streams on which the end of a task will be told.
    following: BTreeSet<(TaskId, Stream)>,
    /// For the rules: what ever happened here.
    pub(super) past: Past,
}

/// What ever happened on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// Tasks that have had a lease.
    pub(super) accepted: BTreeSet<TaskId>,
    /// Tasks whose processes began, but for those that ended with their machine: nobody knows of
    /// these, not even the node, whose disk may not have had them.
    pub(super) began: BTreeSet<TaskId>,
    /// Tasks that ended by themselves.
    pub(super) ended: BTreeSet<TaskId>,
    /// What it said of itself whenever its GPU was free.
    pub(super) shown: Vec<Report>,
    /// The highest lease number.
    seq: (Incarnation, LeaseSeq),
}

fn broken<T>(rule: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { rule, what })
}

impl Host {
    /// A node that has just started.
    pub(super) fn new(number: usize, cast: &Cast) -> Self {
        let incarnation = Incarnation(1);
        let mut ledger = Ledger::new(cast.nodes[number], incarnation, Config::default());
        ledger.handle(Input::Inventory(vec![cast.gpu(number)]), &mut Outbox::new());
        let mut host = Self {
            number: number as u8,
            ledger,
            incarnation,
            follows: Some(0),
            starting: BTreeMap::new(),
            processes: BTreeMap::new(),
            endings: BTreeMap::new(),
            following: BTreeSet::new(),
            past: Past::default(),
        };
        let first = host.report(cast);
        host.past.shown.push(first);
        host
    }

    /// What it says of itself now.
    fn report(&self, cast: &Cast) -> Report {
        report(cast.nodes[usize::from(self.number)], self.incarnation, self.ledger.gpus())
    }

    /// Forgets who waits on streams that are closed.
    pub(super) fn forget_dead(&mut self, open: [Option<u8>; NODES]) {
        let live = |stream: &Stream| open[usize::from(stream.job)] == Some(stream.number);
        self.following.retain(|(_, stream)| live(stream));
        for (_, waiting) in self.starting.values_mut() {
            waiting.retain(|(stream, _)| live(stream));
        }
    }

    /// What can happen here by itself.
    pub(super) fn events(&self, out: &mut Vec<Event>) {
        for task in self.starting.keys() {
            out.extend([Event::Spawn(*task), Event::SpawnFails(*task)]);
        }
        out.extend(self.processes.keys().map(|task| Event::End(*task)));
        out.extend([Event::Crash, Event::Reboot]);
        out.extend((self.follows.map_or(0, |at| at + 1)..2).map(Event::Follow));
    }

    /// Tasks that are alive or about to be.
    pub(super) fn alive(&self) -> impl Iterator<Item = TaskId> {
        self.processes.keys().chain(self.starting.keys()).copied()
    }

    /// Tasks whose processes are alive.
    pub(super) fn runs(&self) -> impl Iterator<Item = TaskId> {
        self.processes.keys().copied()
    }

    /// Whether its GPU has a lease.
    pub(super) fn is_leased(&self) -> bool {
        self.ledger.tasks() > 0
    }

    /// Something happens.
    pub(super) fn happen(&mut self, event: Event, turn: &mut Turn<'_>) -> Result<(), Violation> {
        match event {
            Event::Hear(_) | Event::Steal { .. } => {}
            Event::Spawn(task) => self.spawn(task, turn)?,
            Event::SpawnFails(task) => self.spawn_fails(task, turn),
            Event::End(task) => self.end(task, turn),
            Event::Crash => self.restart(false, turn),
            Event::Reboot => self.restart(true, turn),
            Event::Follow(reign) => self.follows = Some(reign),
        }
        self.check(turn.cast)
    }

    /// A note of a home arrives.
    pub(super) fn hear(&mut self, note: &Note, turn: &mut Turn<'_>) -> Result<(), Violation> {
        match note {
            Note::Open { stream, grant, .. } => {
                let home = turn.cast.nodes[usize::from(stream.job)];
                self.offer(home, *stream, grant, turn)?;
            }
            Note::Attach { stream, task, .. } => self.attach(*stream, *task, turn),
            Note::Acknowledge { task, .. } => {
                self.endings.remove(task);
                self.following.retain(|(other, _)| other != task);
            }
            Note::Ask { .. } | Note::Granted { .. } | Note::Answer { .. } => {}
        }
        self.check(turn.cast)
    }

    fn tell(&mut self, input: Input) {
        // News of leases become reports, which controllers look at when they look.
        self.ledger.handle(input, &mut Outbox::new());
    }

    fn spawn(&mut self, task: TaskId, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let Some((lease, waiting)) = self.starting.remove(&task) else { return Ok(()) };
        for (other, theirs) in &self.processes {
            if let Some(gpu) = shared(&lease, theirs) {
                let (task, other) = (turn.cast.task(task), turn.cast.task(*other));
                return broken("one_lease_per_gpu", format!("{task} has {gpu}, as {other} has"));
            }
        }
        self.past.began.insert(task);
        self.processes.insert(task, lease);
        self.tell(Input::Started { task });
        for (stream, answer) in waiting {
            self.follow(stream, task, answer, turn);
        }
        Ok(())
    }

    fn spawn_fails(&mut self, task: TaskId, turn: &mut Turn<'_>) {
        let Some((_, waiting)) = self.starting.remove(&task) else { return };
        self.tell(Input::Gone { task });
        for (stream, answer) in waiting {
            let answer = match answer {
                Answer::Attached => Answer::Unknown,
                _ => Answer::Refused(cannot_start()),
            };
            turn.notes.push(self.answer(stream, task, answer));
        }
    }

    fn end(&mut self, task: TaskId, turn: &mut Turn<'_>) {
        let Some(lease) = self.processes.remove(&task) else { return };
        self.tell(Input::CommandEnded { task });
        self.tell(Input::Gone { task });
        let outcome = match turn.cast.is(Sabotage::FalseOutcomes) {
            true => Outcome::Exited { code: 255 },
            false => turn.cast.outcome(usize::from(self.number), task),
        };
        self.past.ended.insert(task);
        self.endings.insert(task, (lease.home, outcome.clone()));
        let streams = self.following.extract_if(.., |(other, _)| *other == task);
        let streams: Vec<Stream> = streams.map(|(_, stream)| stream).collect();
        for stream in streams {
            turn.notes.push(self.answer(stream, task, Answer::Ended(outcome.clone())));
        }
    }

    /// The daemon, or the whole machine, dies and comes back.
    fn restart(&mut self, whole: bool, turn: &mut Turn<'_>) {
        self.starting.clear();
        self.following.clear();
        self.follows = None;
        if whole {
            self.processes.keys().for_each(|task| _ = self.past.began.remove(task));
            self.processes.clear();
        }
        if turn.cast.is(Sabotage::ForgetOutcomes) {
            self.endings.clear();
        }
        if !turn.cast.is(Sabotage::SameStart) {
            self.incarnation = self.incarnation.next();
        }
        let me = turn.cast.nodes[usize::from(self.number)];
        self.ledger = Ledger::new(me, self.incarnation, Config::default());
        let alive: Vec<LeaseRecord> = self.processes.values().cloned().collect();
        for lease in alive {
            if !turn.cast.is(Sabotage::ForgetLeases) {
                turn.sights.see(sights::ADOPTED);
                self.tell(Input::Adopt(lease));
            }
        }
        self.tell(Input::Inventory(vec![turn.cast.gpu(usize::from(self.number))]));
    }

    /// What must hold on one node after everything that happens there.
    fn check(&mut self, cast: &Cast) -> Result<(), Violation> {
        if let Some(task) = self.processes.keys().find(|task| !self.ledger.has(**task)) {
            let what = format!("{} runs without a lease", cast.task(*task));
            return broken("lease_before_process", what);
        }
        let seq = self.ledger.gpus().first().map_or(LeaseSeq(0), |gpu| gpu.seq);
        let (before, now) = (self.past.seq, (self.incarnation, seq));
        if before > now {
            let what = format!("lease number {now:?} of node {} after {before:?}", self.number);
            return broken("lease_numbers_grow", what);
        }
        self.past.seq = now;
        let report = self.report(cast);
        if report.gpus.iter().all(Gpu::is_free) && !self.past.shown.contains(&report) {
            self.past.shown.push(report);
        }
        Ok(())
    }
}

fn cannot_start() -> Refusal {
    Refusal::CannotStart { why: String::new(), elsewhere: true }
}

/// A GPU that both have.
fn shared<'a>(one: &'a LeaseRecord, other: &LeaseRecord) -> Option<&'a GpuUuid> {
    let theirs = |gpu: &&GpuUuid| other.gpus.iter().any(|(uuid, _)| uuid == *gpu);
    one.gpus.iter().map(|(uuid, _)| uuid).find(theirs)
}

//! The node's side of streams, and the processes of tasks: as `daemon::host`, `daemon::launch` and
//! the keeper.

use gpuvine::core::grant::Refusal;
use gpuvine::core::id::GpuUuid;
use gpuvine::core::ledger::{Input as Ledger, LeaseRecord, Offer, Trace};
use gpuvine::core::node::Input;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::{Event, News, Spawn, Step, World};
use crate::sim::invariants::Fact;
use crate::sim::machine::{Hosted, Process};
use crate::sim::options::Fault;
use crate::sim::sabotage::Sabotage;
use crate::sim::streams::{Frame, StreamId};

/// Time from SIGTERM to SIGKILL, and from a SIGKILL that did nothing to the keeper's word of it.
const GRACE: Duration = Duration::from_secs(10);
const STUCK_AFTER: Duration = Duration::from_secs(5);

impl World {
    pub(super) fn on_node_frame(&mut self, id: StreamId, frame: Frame) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (machine, home, task) = (stream.node, stream.home, stream.task);
        match frame {
            Frame::Open(grant) => {
                let memory = &mut self.machines[machine].memory;
                memory.offers_made += 1;
                let number = memory.offers_made;
                memory.offers.insert(number, id);
                let Some(node) = &self.machines[machine].node else { return };
                let stolen = self.sabotage == Some(Sabotage::StolenGrants);
                let thief = (home + usize::from(stolen)) % self.machines.len();
                let offer = Offer {
                    offer: number,
                    from: self.machines[thief].id,
                    may_submit: true,
                    follows: node.election().reign(),
                    owner: "user".into(),
                    name: "job".into(),
                    at: self.wall(),
                    grant: grant.clone(),
                };
                self.presented.insert(number, grant);
                self.input(machine, Input::Ledger(Ledger::Offer(Box::new(offer))));
            }
            Frame::Attach => self.on_attach(machine, id, task),
            Frame::Stop { now } => {
                let Some(stream) = self.streams.get_mut(&id) else { return };
                if stream.follows {
                    self.stop(machine, task, now);
                } else {
                    stream.stop = Some(now);
                }
            }
            Frame::Acknowledge => {
                self.close_node(id);
                self.input(machine, Input::Ledger(Ledger::Acknowledged { task }));
                self.heard(machine, task);
            }
            Frame::Closed => self.close_node(id),
            _ => {}
        }
    }

    fn on_attach(&mut self, machine: usize, id: StreamId, task: TaskId) {
        let home = self.streams.get(&id).map(|stream| self.machines[stream.home].id);
        let (Some(node), Some(home)) = (&self.machines[machine].node, home) else { return };
        match node.ledger().trace(task, home) {
            Trace::Leased => {}
            Trace::Nothing => self.input(machine, Input::Ledger(Ledger::Forswear { task })),
            Trace::GivenUp => {
                let why = "its outcome was given up".to_owned();
                let ended = Frame::Ended(Outcome::Lost { why }, self.wall());
                self.frame(id, ended, true);
                self.await_acknowledgement(machine, id);
                return;
            }
        }
        let here = &mut self.machines[machine];
        if let Some(waiting) = here.memory.starting.get_mut(&task) {
            waiting.push((id, true));
            return;
        }
        let hosted = self.machines[machine].memory.hosted.get(&task);
        let ended = hosted.is_some_and(|hosted| hosted.ended.is_some());
        let forgets = self.sabotage == Some(Sabotage::ForgetOutcomes) && ended;
        let lie = self.sabotage == Some(Sabotage::DenyTasks) || forgets;
        match hosted.filter(|hosted| !lie && hosted.home == home) {
            Some(hosted) => {
                let ended = hosted.ended.clone();
                self.follow(id, Frame::Attached, ended);
            }
            None => {
                self.frame(id, Frame::Unknown, true);
                self.close_node(id);
            }
        }
    }

    /// The stream has its answer, and the task's end follows on it.
    fn follow(
        &mut self,
        id: StreamId,
        answer: Frame,
        ended: Option<(Outcome, gpuvine::core::time::WallTime)>,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.follows = true;
        let (machine, task, stop) = (stream.node, stream.task, stream.stop.take());
        self.frame(id, answer, true);
        if let Some((outcome, at)) = ended {
            self.frame(id, Frame::Ended(outcome, at), true);
            self.await_acknowledgement(machine, id);
        }
        if let Some(now) = stop {
            self.stop(machine, task, now);
        }
    }

    pub(super) fn on_accept(&mut self, machine: usize, offer: u64, lease: LeaseRecord) {
        let grant = self.presented.remove(&offer);
        let Some(id) = self.machines[machine].memory.offers.remove(&offer) else { return };
        if let Some(grant) = grant {
            let from = self.streams.get(&id).map(|stream| self.machines[stream.home].id);
            let me = self.machines[machine].id;
            self.checks.see(&Fact::Accepted { me, from, lease: &lease, grant: &grant });
        }
        self.say(machine, "leases", format_args!("{}", lease.task));
        let may_fail = self.options.faults.has(Fault::NoStart) && self.striking;
        let fails = self.starts_fail || (may_fail && self.rng.random_bool(0.15));
        let orphaned = self.rng.random_bool(0.5);
        let wait = Duration::from_micros(self.rng.random_range(800..6_000));
        let here = &mut self.machines[machine];
        here.memory.starting.insert(lease.task, vec![(id, false)]);
        let (life, boot) = (here.life, here.boot);
        let spawn = Box::new(Spawn { lease, fails, orphaned });
        self.agenda.at(self.now + wait, Event::Spawn { machine, life, boot, spawn });
    }

    pub(super) fn on_refuse(&mut self, machine: usize, offer: u64, refusal: Refusal) {
        let grant = self.presented.remove(&offer);
        let Some(id) = self.machines[machine].memory.offers.remove(&offer) else { return };
        // What a ledger without its rules would do.
        let ignored = match self.sabotage {
            Some(Sabotage::IgnoreTaken) => matches!(refusal, Refusal::Taken { .. }),
            Some(Sabotage::StolenGrants) => matches!(refusal, Refusal::OtherHome),
            _ => false,
        };
        if let (true, Some(grant)) = (ignored, grant) {
            let value = grant.value();
            let lease = LeaseRecord {
                task: TaskId { job: value.job, attempt: value.attempt },
                gpus: value.gpus.clone(),
                home: if refusal == Refusal::OtherHome { value.node } else { value.home },
                owner: "user".into(),
                name: "job".into(),
                since: self.wall(),
            };
            self.machines[machine].memory.offers.insert(offer, id);
            self.presented.insert(offer, grant);
            self.on_accept(machine, offer, lease);
            return;
        }
        self.frame(id, Frame::Refused(refusal), true);
        self.close_node(id);
    }

    pub(super) fn on_resume(&mut self, machine: usize, offer: u64, task: TaskId) {
        self.presented.remove(&offer);
        let memory = &mut self.machines[machine].memory;
        let Some(id) = memory.offers.remove(&offer) else { return };
        if let Some(waiting) = memory.starting.get_mut(&task) {
            waiting.push((id, false));
            return;
        }
        match memory.hosted.get(&task).map(|hosted| hosted.ended.clone()) {
            Some(ended) => self.follow(id, Frame::Accepted, ended),
            None => self.refuse_start(id),
        }
    }

    fn refuse_start(&mut self, id: StreamId) {
        let refusal = Refusal::CannotStart { why: "simulated".into(), elsewhere: true };
        self.frame(id, Frame::Refused(refusal), true);
        self.close_node(id);
    }

    pub(super) fn on_spawn(&mut self, machine: usize, life: u32, boot: u32, spawn: Spawn) {
        let here = &mut self.machines[machine];
        let task = spawn.lease.task;
        let watched = here.life == life && here.is_up();
        if here.boot != boot || (!watched && (spawn.fails || !spawn.orphaned)) {
            return;
        }
        if spawn.fails {
            self.news(machine, task, News::Failed);
            return;
        }
        let gpus: Vec<GpuUuid> = spawn.lease.gpus.iter().map(|(gpu, _)| gpu.clone()).collect();
        let home = spawn.lease.home;
        let temper = self.tempers.get(&task.job).copied().unwrap_or_default();
        self.checks.see(&Fact::Started { machine, task, gpus: &gpus });
        self.say(machine, "starts", format_args!("{task} on {} GPUs", gpus.len()));
        let process =
            Process { lease: spawn.lease, temper, ended: None, told_to_stop: false, stuck: false };
        self.machines[machine].processes.insert(task, process);
        let end = Step::End(Outcome::Exited { code: temper.code });
        self.agenda.at(self.now + temper.runs, Event::Process { machine, boot, task, step: end });
        self.news(machine, task, News::Started { home });
    }

    /// A keeper tells the daemon, if one is there; a later one finds out by itself.
    fn news(&mut self, machine: usize, task: TaskId, news: News) {
        let life = self.machines[machine].life;
        let at = self.now + Duration::from_micros(100);
        self.agenda.at(at, Event::Keeper { machine, life, task, news });
    }

    pub(super) fn on_news(&mut self, machine: usize, task: TaskId, news: News) {
        match news {
            News::Started { home } => {
                let here = &mut self.machines[machine];
                here.memory.hosted.insert(task, Hosted { home, ended: None });
                let waiting = here.memory.starting.remove(&task).unwrap_or_default();
                self.input(machine, Input::Ledger(Ledger::Started { task }));
                for (id, attach) in waiting {
                    let answer = if attach { Frame::Attached } else { Frame::Accepted };
                    self.follow(id, answer, None);
                }
            }
            News::Failed => {
                let here = &mut self.machines[machine];
                let waiting = here.memory.starting.remove(&task).unwrap_or_default();
                self.input(machine, Input::Ledger(Ledger::Gone { task }));
                for (id, attach) in waiting {
                    if attach {
                        self.frame(id, Frame::Unknown, true);
                        self.close_node(id);
                    } else {
                        self.refuse_start(id);
                    }
                }
            }
            News::CommandEnded => self.input(machine, Input::Ledger(Ledger::CommandEnded { task })),
            News::Stuck => {
                let why = "SIGKILL does nothing".to_owned();
                self.input(machine, Input::Ledger(Ledger::Stuck { task, why }));
            }
            News::Gone(outcome) => {
                if self.sabotage != Some(Sabotage::KeepLeases) {
                    self.input(machine, Input::Ledger(Ledger::Gone { task }));
                }
                let at = self.wall();
                if let Some(hosted) = self.machines[machine].memory.hosted.get_mut(&task) {
                    hosted.ended = Some((outcome.clone(), at));
                }
                let following: Vec<StreamId> = self
                    .streams
                    .iter()
                    .filter(|(_, stream)| {
                        stream.node == machine && stream.task == task && stream.follows
                    })
                    .map(|(id, _)| *id)
                    .collect();
                for id in following {
                    self.frame(id, Frame::Ended(outcome.clone(), at), true);
                    self.await_acknowledgement(machine, id);
                }
                self.keep_outcome(machine, task);
            }
        }
    }

    /// The daemon tells the keeper to end a task.
    fn stop(&mut self, machine: usize, task: TaskId, now: bool) {
        self.checks.see(&Fact::Stopping { task });
        let here = &mut self.machines[machine];
        let boot = here.boot;
        let Some(process) = here.processes.get_mut(&task) else { return };
        self.trace.line(self.now, machine, "stops", format_args!("{task} now={now}"));
        let first = !std::mem::replace(&mut process.told_to_stop, true);
        let obeys = !process.temper.ignores_term;
        let mut later = |after: Duration, step: Step| {
            self.agenda.at(self.now + after, Event::Process { machine, boot, task, step });
        };
        if first && obeys && !now {
            later(Duration::from_millis(3), Step::End(Outcome::Signaled { signal: 15 }));
        }
        later(if now { Duration::ZERO } else { GRACE }, Step::Kill);
    }

    /// What no controller may do.
    pub(super) fn stop_all(&mut self, machine: usize) {
        let tasks: Vec<TaskId> = self.machines[machine].processes.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.stop(machine, task, true));
    }

    pub(super) fn on_process(&mut self, machine: usize, boot: u32, task: TaskId, step: Step) {
        let here = &mut self.machines[machine];
        if here.boot != boot {
            return;
        }
        let Some(process) = here.processes.get_mut(&task) else { return };
        let temper = process.temper;
        let mut later = |after: Duration, step: Step| {
            self.agenda.at(self.now + after, Event::Process { machine, boot, task, step });
        };
        match step {
            Step::End(outcome) => {
                if process.ended.is_some() {
                    return;
                }
                process.ended = Some(outcome);
                later(temper.lingers, Step::Gone);
                self.news(machine, task, News::CommandEnded);
            }
            Step::Kill => {
                process.ended.get_or_insert(Outcome::Signaled { signal: 9 });
                let stuck = temper.unkillable > Duration::ZERO;
                let first = !std::mem::replace(&mut process.stuck, stuck);
                later(temper.unkillable, Step::Gone);
                if stuck && first && temper.unkillable > STUCK_AFTER {
                    let life = here.life;
                    let news = Event::Keeper { machine, life, task, news: News::Stuck };
                    self.agenda.at(self.now + STUCK_AFTER, news);
                }
            }
            Step::Gone => {
                let Some(process) = here.processes.remove(&task) else { return };
                let outcome = process.ended.unwrap_or(Outcome::Signaled { signal: 9 });
                self.checks.see(&Fact::Gone { task, outcome: &outcome });
                self.say(machine, "gone", format_args!("{task} {outcome:?}"));
                let at = self.wall();
                let ending = (process.lease, outcome.clone(), at);
                self.machines[machine].endings.insert(task, ending);
                self.news(machine, task, News::Gone(outcome));
            }
        }
    }
}

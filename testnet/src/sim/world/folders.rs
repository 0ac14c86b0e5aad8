//! The folders of tasks that have ended: how long a node keeps them, and what a crash leaves of
//! them. As `daemon::host::table` and `run::folder`.

use std::collections::VecDeque;

use gpuvine::core::ledger::Input as Ledger;
use gpuvine::core::node::Input;
use gpuvine::core::task::TaskId;
use gpuvine::core::time::Duration;

use super::{Event, World};
use crate::sim::invariants::Fact;
use crate::sim::options::Fault;
use crate::sim::streams::{Frame, StreamId};

/// Outcomes that a node keeps whose homes know them, and do not.
const ENDED_MAX: usize = 256;
const UNHEARD_MAX: usize = 1_024;

/// The same with [`Fault::Prune`], for runs in which few tasks end.
const ENDED_FEW: usize = 1;
const UNHEARD_FEW: usize = 2;

/// How long an outcome's acknowledgement is waited for on the stream that carried it.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long what a keeper writes may be in memory only.
const WRITEBACK: Duration = Duration::from_secs(30);

impl World {
    /// A task has ended; so many outcomes are kept for homes that have not asked.
    pub(super) fn keep_outcome(&mut self, machine: usize, task: TaskId) {
        let most = if self.prunes() { UNHEARD_FEW } else { UNHEARD_MAX };
        let unheard = &mut self.machines[machine].memory.unheard;
        unheard.push_back(task);
        if let Some(oldest) = one_too_many(unheard, most) {
            self.checks.see(&Fact::GivenUp { machine, task: oldest });
            self.say(machine, "gives up", format_args!("the outcome of {oldest}"));
            let home = self.machines[machine].memory.hosted.get(&oldest).map(|hosted| hosted.home);
            if let Some(home) = home {
                self.input(machine, Input::Ledger(Ledger::GivenUp { task: oldest, home }));
            }
            self.forget_folder(machine, oldest);
        }
    }

    /// Its home knows that; so many are kept for those who want to see output.
    pub(super) fn heard(&mut self, machine: usize, task: TaskId) {
        let most = if self.prunes() { ENDED_FEW } else { ENDED_MAX };
        let memory = &mut self.machines[machine].memory;
        let Some(at) = memory.unheard.iter().position(|unheard| *unheard == task) else { return };
        memory.unheard.remove(at);
        memory.heard.push_back(task);
        if let Some(oldest) = one_too_many(&mut memory.heard, most) {
            self.forget_folder(machine, oldest);
        }
    }

    fn prunes(&self) -> bool {
        self.options.faults.has(Fault::Prune)
    }

    fn forget_folder(&mut self, machine: usize, task: TaskId) {
        let here = &mut self.machines[machine];
        here.memory.hosted.remove(&task);
        here.endings.remove(&task);
    }

    /// The end of a task has been told on a stream.
    pub(super) fn await_acknowledgement(&mut self, machine: usize, stream: StreamId) {
        let life = self.machines[machine].life;
        self.agenda.at(self.now + PATIENCE, Event::Patience { machine, life, stream });
    }

    pub(super) fn on_patience(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|stream| stream.node_open) {
            self.frame(id, Frame::Closed, true);
            self.close_node(id);
        }
    }

    /// The power fails: of the files of tasks that ended just now any may be empty. One without its
    /// outcome is lost, as all that were running are; of one without its lease nobody knows.
    pub(super) fn tear_folders(&mut self, machine: usize) {
        if !self.options.faults.has(Fault::Torn) || !self.striking {
            return;
        }
        let now = self.wall();
        let recent = |at: u64| now.0.saturating_sub(at) < WRITEBACK.as_millis() as u64;
        let endings = self.machines[machine].endings.iter();
        let endings = endings.filter(|(_, (_, _, at))| recent(at.0));
        let endings: Vec<TaskId> = endings.map(|(task, _)| *task).collect();
        for task in endings {
            if self.by_chance(0.2) {
                self.say(machine, "torn", format_args!("{task}: nothing is known of it"));
                self.machines[machine].endings.remove(&task);
            } else if self.by_chance(0.3)
                && let Some((_, outcome, _)) = self.machines[machine].endings.get_mut(&task)
            {
                *outcome = super::power::restarted();
                self.say(machine, "torn", format_args!("{task}: its outcome is lost"));
            }
        }
    }
}

fn one_too_many(tasks: &mut VecDeque<TaskId>, most: usize) -> Option<TaskId> {
    if tasks.len() > most { tasks.pop_front() } else { None }
}

//! After the last fault everything comes right, by a deadline: one controller, equal directories,
//! every job ended, nothing held by nobody.

use gpuvine::core::id::{JobId, Reign};
use gpuvine::core::job::JobState;
use gpuvine::core::report::NodeState;
use gpuvine::core::request::Need;
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::machine::Temper;
use super::world::{Event, User, World};

/// How often it is looked whether all is well.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a job on a mesh at peace may take.
const PROBE_WITHIN: Duration = Duration::from_secs(20);

impl World {
    /// What is not well yet.
    pub(crate) fn unrest(&self) -> Result<(), String> {
        let mut reigns: Vec<(usize, Reign)> = Vec::new();
        let mut digests = Vec::new();
        for (index, machine) in self.machines.iter().enumerate() {
            let Some(node) = &machine.node else { return Err(format!("n{index} is down")) };
            if machine.frozen {
                return Err(format!("n{index} is frozen"));
            }
            let Some(reign) = node.election().reign() else {
                return Err(format!("n{index} follows nobody"));
            };
            if node.election().is_vacant() {
                return Err(format!("n{index} has given up its controller"));
            }
            let alive = node.directory().alive().count();
            if alive != self.machines.len() {
                return Err(format!("n{index} sees {alive} nodes alive"));
            }
            if node.report().state != NodeState::Serving {
                return Err(format!("n{index} does not serve"));
            }
            reigns.push((index, reign));
            digests.push((index, node.directory().digest()));
        }
        if let Some(pair) = reigns.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            return Err(format!("they follow different controllers: {pair:?}"));
        }
        if let Some(pair) = digests.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            return Err(format!("their directories differ: {pair:?}"));
        }
        self.jobs_at_rest()
    }

    /// Every job has ended, and nobody holds a GPU for nobody.
    fn jobs_at_rest(&self) -> Result<(), String> {
        for (index, machine) in self.machines.iter().enumerate() {
            let Some(node) = &machine.node else { continue };
            if let Some(job) = node.jobs().iter().find(|job| !job.state.is_ended()) {
                return Err(format!("n{index}: job {} is {:?}", job.task, job.state));
            }
            if let Some(task) = machine.processes.keys().next() {
                return Err(format!("n{index}: {task} runs"));
            }
            if node.ledger().tasks() > 0 {
                let leases = node.ledger().tasks();
                return Err(format!("n{index}: {leases} leases are held by nobody"));
            }
            let shown = node.ledger().gpus();
            if let Some(gpu) = shown.iter().find(|gpu| !gpu.is_free()) {
                return Err(format!("n{index}: {} is {:?}", gpu.uuid, gpu.health));
            }
            if shown.len() != machine.gpus.len() {
                return Err(format!("n{index} shows {} GPUs", shown.len()));
            }
            if node.controller().waiting() > 0 {
                return Err(format!("n{index}: requests wait that nobody has"));
            }
        }
        Ok(())
    }

    /// Waits until all is well, then sees whether work is done from everywhere.
    pub(crate) fn settle(&mut self) {
        if !self.wait_for_rest(self.options.calm, "comes_to_rest") {
            return;
        }
        if self.machines.iter().all(|machine| machine.gpus.is_empty()) {
            return;
        }
        for machine in 0..self.machines.len() {
            let job = JobId::from_bits(self.rng.random());
            let need = Need { gpus: 1, ..Need::default() };
            let temper = Temper { runs: Duration::from_millis(100), ..Temper::default() };
            let name = format!("probe {machine}");
            let submit = User::Submit { machine, job, need, temper, name };
            self.agenda.at(self.now, Event::User(submit));
            self.probes.push((machine, job));
        }
        self.run(Duration::from_millis(1));
        if !self.wait_for_rest(PROBE_WITHIN, "works_again") {
            return;
        }
        for (machine, job) in std::mem::take(&mut self.probes) {
            let node = self.machines[machine].node.as_ref();
            let state = node.and_then(|node| node.jobs().find(job)).map(|job| job.state.clone());
            if !matches!(state, Some(JobState::Ended { .. })) {
                self.checks.fail("works_again", format!("a job of n{machine} is {state:?}"));
            }
        }
    }

    fn wait_for_rest(&mut self, within: Duration, rule: &'static str) -> bool {
        let until = self.now + within;
        loop {
            match self.unrest() {
                Ok(()) => return self.violation().is_none(),
                Err(what) if self.now >= until => {
                    self.checks.fail(rule, format!("after {within:?}: {what}"));
                    return false;
                }
                Err(_) => self.run(LOOK_EVERY),
            }
            if self.violation().is_some() {
                return false;
            }
        }
    }
}

//! After the last fault everything comes right, by a deadline: one controller, equal directories,
//! every job ended, nothing held by nobody.

use gpuvine::core::id::{JobId, Reign};
use gpuvine::core::job::{JobRecord, JobState};
use gpuvine::core::report::NodeState;
use gpuvine::core::request::Need;
use gpuvine::core::task::TaskId;
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::machine::Temper;
use super::world::{Event, User, World};

/// How often it is looked whether all is well.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When the last of what was sent to a machine that vanished has come back.
const RETURN_WITHIN: Duration = Duration::from_secs(30);

/// How long a job on a mesh at peace may take.
const PROBE_WITHIN: Duration = Duration::from_secs(20);

impl World {
    /// What is not well yet.
    pub(crate) fn unrest(&self) -> Result<(), String> {
        let mut reigns: Vec<(usize, Reign)> = Vec::new();
        let mut digests = Vec::new();
        let present = self.present().count();
        for (index, machine) in self.present() {
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
            if alive != present {
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

    /// Every job has ended that can, and nobody holds a GPU for nobody.
    fn jobs_at_rest(&self) -> Result<(), String> {
        for (index, machine) in self.present() {
            let Some(node) = &machine.node else { continue };
            let mut jobs = node.jobs().iter();
            if let Some(job) = jobs.find(|job| !job.state.is_ended() && !self.is_stranded(job)) {
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
            let mut waiting = node.controller().queue();
            if waiting.any(|((_, task), _)| !self.waits_for_ever(*task)) {
                return Err(format!("n{index}: requests wait that nobody has"));
            }
        }
        Ok(())
    }

    /// Whether a job is bound to a machine that vanished: it was placed there, and its home comes
    /// back to it for as long as it takes; or only that one could run it, and may return.
    fn is_stranded(&self, job: &JobRecord) -> bool {
        let gone = |node| !self.present().any(|(_, machine)| machine.id == node);
        match &job.state {
            JobState::Starting { grant } => gone(grant.node),
            JobState::Running { place, connected: false, .. } => gone(place.node),
            JobState::Waiting { .. } => {
                !self.present().any(|(_, machine)| machine.could_fill(&job.spec.need))
            }
            _ => false,
        }
    }

    /// Whether a request is that of such a job.
    fn waits_for_ever(&self, task: TaskId) -> bool {
        let homes = self.present().filter_map(|(_, machine)| machine.node.as_ref());
        let mut jobs = homes.filter_map(|node| node.jobs().find(task.job));
        jobs.any(|job| job.task == task && !job.state.is_ended() && self.is_stranded(job))
    }

    /// Waits until all is well, then sees whether work is done from everywhere.
    pub(crate) fn settle(&mut self) {
        if !self.wait_for_rest(self.options.calm, "comes_to_rest") {
            return;
        }
        if self.machines.iter().any(|machine| machine.gone_for_good) {
            // What was sent to a machine that vanished just now comes back.
            self.run(RETURN_WITHIN);
            if !self.wait_for_rest(self.options.calm, "comes_to_rest") {
                return;
            }
        }
        if self.present().all(|(_, machine)| machine.gpus.is_empty()) {
            return;
        }
        let present: Vec<usize> = self.present().map(|(index, _)| index).collect();
        for machine in present {
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

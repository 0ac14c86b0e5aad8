//! Daemons and machines that start, stop, die and come back.

use gpuvine::core::job::{self, JobRecord, JobState};
use gpuvine::core::ledger::Input as Ledger;
use gpuvine::core::node::{Config, Input, Node};
use gpuvine::core::reporting::Facts;
use gpuvine::core::rights::Rights;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::{Duration, Instant};
use gpuvine::core::{controller, election, ledger};
use rand::RngExt as _;

use super::World;
use crate::sim::disk::Left;
use crate::sim::invariants::Fact;
use crate::sim::machine::{Clock, Hosted, Memory};
use crate::sim::options::Fault;
use crate::sim::sabotage::Sabotage;

impl World {
    /// Switches all machines on, one after the other, and lets the mesh come together.
    pub fn found(&mut self) {
        for machine in 0..self.machines.len() {
            self.new_clock(machine);
            let image = &mut self.machines[machine].disk.image;
            if machine == 0 {
                image.seniority = Some(0);
            } else {
                image.peers.insert(0);
            }
            self.start(machine);
            let wait = Duration::from_millis(self.rng.random_range(20..1_500));
            self.run(wait);
        }
    }

    /// Clocks begin anywhere.
    pub(super) fn new_clock(&mut self, machine: usize) {
        let base = Instant::from_nanos(self.rng.random_range(1..3_600) * 1_000_000_000);
        let drift = self.rng.random_range(-2_000..=2_000);
        let drifts = self.options.faults.has(Fault::Drift);
        self.machines[machine].clock = Clock::new(self.now, base, if drifts { drift } else { 0 });
    }

    /// Starts a daemon: as `daemon::start` does.
    pub(crate) fn start(&mut self, machine: usize) {
        if self.machines[machine].is_up() || self.machines[machine].gone_for_good {
            return;
        }
        let seed = self.rng.random();
        let old = self.machines[machine].old_disk.is_some();
        let here = &mut self.machines[machine];
        if let Some(image) = here.old_disk.take() {
            here.disk.image = image;
        }
        here.life += 1;
        here.memory = Memory::default();
        here.timer = None;
        here.held.clear();
        match self.sabotage {
            Some(Sabotage::ForgetJobs) => here.disk.image.jobs.clear(),
            Some(Sabotage::ReviveJobs) => here.disk.image.jobs.values_mut().for_each(revive),
            _ => {}
        }
        here.disk.image.incarnation = here.disk.image.incarnation.next();
        let config = self.config(machine, seed);
        let here = &mut self.machines[machine];
        let local = here.clock.local(self.now);
        here.node = Some(Node::new(config, local));
        let image = here.disk.image.clone();
        let (life, incarnation) = (here.life, image.incarnation);
        self.say(machine, "boots", format_args!("life {life} incarnation {incarnation} old={old}"));
        self.checks.see(&Fact::Boots { machine, old });
        self.recover(machine);
        for record in image.jobs.into_values() {
            self.input(machine, Input::Job(job::Input::Recall(Box::new(record))));
        }
        if let Some(node) = &self.machines[machine].node {
            self.checks.see(&Fact::Recalled { machine, node });
        }
        self.input(machine, Input::Addresses(vec![format!("m{machine}")]));
        let gpus = self.machines[machine].inventory();
        self.input(machine, Input::Inventory(gpus, None));
        self.set_timer(machine);
    }

    /// What no daemon may do: begin anew without a word.
    pub(super) fn forget_all(&mut self, machine: usize) {
        let seed = self.rng.random();
        if self.machines[machine].is_up() {
            let config = self.config(machine, seed);
            let here = &mut self.machines[machine];
            here.node = Some(Node::new(config, here.clock.local(self.now)));
        }
    }

    /// Tasks of before this start: those that live keep their leases, of the others the end is
    /// kept for their homes.
    fn recover(&mut self, machine: usize) {
        let here = &mut self.machines[machine];
        let alive: Vec<_> = here.processes.values().map(|process| process.lease.clone()).collect();
        let ended: Vec<TaskId> = here.endings.keys().copied().collect();
        for (task, (lease, outcome, at)) in &here.endings {
            let hosted = Hosted { home: lease.home, ended: Some((outcome.clone(), *at)) };
            here.memory.hosted.insert(*task, hosted);
        }
        ended.into_iter().for_each(|task| self.keep_outcome(machine, task));
        for lease in alive {
            let here = &mut self.machines[machine];
            let (task, home) = (lease.task, lease.home);
            here.memory.hosted.insert(task, Hosted { home, ended: None });
            self.input(machine, Input::Ledger(Ledger::Adopt(lease)));
        }
    }

    /// kill -9 of a daemon; its tasks do not notice. On a machine that sleeps nobody can.
    pub(crate) fn kill(&mut self, machine: usize) {
        if !self.machines[machine].is_up() || self.machines[machine].asleep {
            return;
        }
        self.say(machine, "killed", format_args!(""));
        self.end(machine, false);
    }

    /// The operator ends a daemon.
    pub(crate) fn leave(&mut self, machine: usize) {
        if self.machines[machine].is_up() && !self.machines[machine].frozen {
            self.say(machine, "leaves", format_args!(""));
            self.input(machine, Input::Leave);
            self.end(machine, false);
        }
    }

    fn end(&mut self, machine: usize, silently: bool) {
        let left = self.what_is_left();
        let here = &mut self.machines[machine];
        here.node = None;
        here.frozen = false;
        here.held.retain(|event| event.place().is_none());
        here.disk.crash(left);
        self.abandon(machine, silently);
        // Streams within the machine.
        self.streams.retain(|_, stream| stream.home != machine || stream.node != machine);
    }

    /// Of the commit that is under way at a crash.
    fn what_is_left(&mut self) -> Left {
        let torn = self.options.faults.has(Fault::Torn) && self.striking;
        match self.rng.random_bool(0.5) {
            _ if torn && self.by_chance(0.5) => Left::Fence,
            true => Left::All,
            false => Left::Nothing,
        }
    }

    /// The machine loses power.
    pub(crate) fn power_off(&mut self, machine: usize) {
        self.say(machine, "power off", format_args!(""));
        if self.machines[machine].is_up() {
            self.end(machine, true);
        }
        self.checks.see(&Fact::PowerLost { machine });
        self.tear_folders(machine);
        let at = self.wall();
        let here = &mut self.machines[machine];
        here.boot += 1;
        here.asleep = false;
        here.held.clear();
        self.network.silent.remove(&machine);
        let here = &mut self.machines[machine];
        for (task, process) in std::mem::take(&mut here.processes) {
            self.checks.see(&Fact::Lost { task });
            // The folder of the task may not have been synced.
            if self.rng.random_bool(0.7) {
                let outcome = restarted();
                here.endings.insert(task, (process.lease, outcome, at));
            }
        }
        self.new_clock(machine);
    }

    /// The daemon stops in its tracks, or the whole machine does.
    pub(crate) fn freeze(&mut self, machine: usize, asleep: bool) {
        let here = &mut self.machines[machine];
        if !here.is_up() || here.frozen {
            return;
        }
        here.frozen = true;
        here.asleep = asleep;
        if asleep {
            self.network.silent.insert(machine);
            self.check_idle_links();
        }
        self.say(machine, "frozen", format_args!("asleep={asleep}"));
    }

    /// It goes on, with all that has come meanwhile.
    pub(crate) fn thaw(&mut self, machine: usize) {
        let here = &mut self.machines[machine];
        if !here.frozen {
            return;
        }
        here.frozen = false;
        here.asleep = false;
        let held = std::mem::take(&mut here.held);
        self.say(machine, "thawed", format_args!("{} events waited", held.len()));
        self.network.silent.remove(&machine);
        self.unstall();
        for event in held {
            self.happen(event);
        }
        self.set_timer(machine);
    }

    /// GPUs vanish or come back; the daemon looks again some time later, here at once.
    pub(crate) fn look(&mut self, machine: usize) {
        let gpus = self.machines[machine].inventory();
        self.input(machine, Input::Inventory(gpus, None));
    }

    /// What the daemon's start makes of its disk.
    fn config(&self, machine: usize, seed: [u8; 32]) -> Config {
        let here = &self.machines[machine];
        let image = &here.disk.image;
        let facts = Facts {
            name: format!("n{machine}"),
            labels: std::collections::BTreeMap::new(),
            priority: 0,
            cpus: 8,
            memory_bytes: 64 << 30,
            software: "simulated".into(),
        };
        let remembered =
            image.peers.iter().map(|peer| (self.machines[*peer].id, vec![format!("m{peer}")]));
        let remembered: Vec<_> = remembered.collect();
        let bootstrap: Vec<String> = remembered.iter().flat_map(|(_, at)| at.clone()).collect();
        let mut settings = election::Config::default();
        if bootstrap.is_empty() {
            settings.listen = Duration::ZERO;
        }
        Config {
            key: here.key.clone(),
            incarnation: image.incarnation,
            term: image.term,
            seniority: image.seniority,
            rights: Rights::ALL,
            facts,
            bootstrap,
            remembered,
            seed,
            election: settings,
            controller: controller::Config::default(),
            ledger: ledger::Config::default(),
        }
    }
}

/// How a task has ended of which nothing else is known after the machine was restarted.
pub(super) fn restarted() -> Outcome {
    Outcome::Lost { why: "its machine was restarted".into() }
}

/// The record of an end becomes one of before.
fn revive(record: &mut JobRecord) {
    if let JobState::Ended { place: Some(place), at, .. } = &record.state {
        let (place, since) = (place.clone(), *at);
        record.state = JobState::Running { place, since, connected: false };
    }
}

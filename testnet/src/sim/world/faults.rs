//! What goes wrong, when, and for how long.

use gpuvine::core::time::Duration;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use super::{Event, World};
use crate::sim::options::Fault;
use crate::sim::sabotage::Sabotage;

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undo {
    /// The daemon is started.
    Start(usize),
    /// The daemon goes on.
    Thaw(usize),
    /// The network is as new.
    Heal,
    /// The GPUs are back.
    Gpus(usize),
    /// The machine is switched off for good.
    Remove(usize),
}

impl World {
    /// From now on faults strike, until the chaos is over.
    pub(crate) fn begin_chaos(&mut self) {
        self.striking = true;
        let has = |fault| self.options.faults.has(fault);
        self.network.lossy =
            if has(Fault::Lossy) { self.chance.random_range(0.001..0.08) } else { 0.0 };
        if has(Fault::GossipLoss) {
            self.network.gossip_loss = self.chance.random_range(0.05..0.9);
        }
        self.next_strike();
        self.agenda.at(self.now + self.options.chaos, Event::Calm);
    }

    fn next_strike(&mut self) {
        let mean = self.options.fault_every.as_secs_f64();
        let chance: f64 = self.chance.random_range(0.000_1..1.0);
        let wait = Duration::from_secs_f64(-mean * chance.ln());
        self.agenda.at(self.now + wait, Event::Strike);
    }

    pub(super) fn on_strike(&mut self) {
        if !self.striking {
            return;
        }
        let strikes = |fault: &Fault| !fault.lasts();
        let faults: Vec<Fault> = self.options.faults.0.iter().copied().filter(strikes).collect();
        if let Some(fault) = faults.choose(&mut self.chance).copied() {
            self.strike(fault);
        }
        self.next_strike();
    }

    /// A machine, often the one that reigns.
    fn victim(&mut self) -> usize {
        let reigns = self.machines.iter().position(|machine| {
            machine.node.as_ref().is_some_and(|node| node.election().is_controller())
        });
        match reigns.filter(|_| self.chance.random_bool(0.4)) {
            Some(controller) => controller,
            None => self.chance.random_range(0..self.machines.len()),
        }
    }

    pub(super) fn by_chance(&mut self, share: f64) -> bool {
        self.chance.random_bool(share)
    }

    pub(super) fn span(&mut self, least: u64, most: u64) -> Duration {
        // Short ones are as likely as long ones, whatever the scale.
        let (least, most) = ((least as f64).ln(), (most as f64).ln());
        Duration::from_secs_f64(self.chance.random_range(least..most).exp() / 1_000.0)
    }

    pub(crate) fn undo(&mut self, after: Duration, undo: Undo) {
        self.agenda.at(self.now + after, Event::Undo(undo));
    }

    fn strike(&mut self, fault: Fault) {
        let machine = self.victim();
        if self.sabotage == Some(Sabotage::Amnesia) {
            self.forget_all(machine);
        }
        self.say(machine, "FAULT", format_args!("{fault:?}"));
        match fault {
            Fault::Kill => {
                self.kill(machine);
                let after = self.span(100, 20_000);
                self.undo(after, Undo::Start(machine));
            }
            Fault::Power => {
                self.power_off(machine);
                let after = self.span(1_000, 40_000);
                self.undo(after, Undo::Start(machine));
            }
            Fault::Leave => {
                self.leave(machine);
                let after = self.span(300, 30_000);
                self.undo(after, Undo::Start(machine));
            }
            Fault::OldDisk => {
                let here = &self.machines[machine];
                let image = here.disk.image.clone();
                if here.disk.saved.is_none() {
                    self.machines[machine].disk.saved = Some(image);
                } else {
                    self.power_off(machine);
                    let here = &mut self.machines[machine];
                    here.old_disk = here.disk.saved.take();
                    here.endings.clear();
                    let after = self.span(1_000, 20_000);
                    self.undo(after, Undo::Start(machine));
                }
            }
            Fault::Clone => self.strike_copy(machine),
            Fault::Vanish => self.strike_vanish(machine),
            Fault::Freeze | Fault::Suspend => {
                self.freeze(machine, fault == Fault::Suspend);
                let after = self.span(200, 60_000);
                self.undo(after, Undo::Thaw(machine));
            }
            Fault::GpuLoss => {
                let gpus = self.machines[machine].gpus.clone();
                if let Some(gpu) = gpus.choose(&mut self.chance) {
                    self.machines[machine].gone_gpus.insert(gpu.uuid.clone());
                    self.look_if_awake(machine);
                    let after = self.span(500, 30_000);
                    self.undo(after, Undo::Gpus(machine));
                }
            }
            Fault::Split | Fault::OneWay | Fault::Isolate | Fault::Slow | Fault::Reset => {
                self.strike_network(fault, machine);
            }
            Fault::Lossy
            | Fault::GossipLoss
            | Fault::Drift
            | Fault::SlowDisk
            | Fault::NoStart
            | Fault::Stubborn
            | Fault::Cancel
            | Fault::Torn
            | Fault::Prune => {}
        }
    }

    fn strike_network(&mut self, fault: Fault, machine: usize) {
        let all = self.machines.len();
        let other = self.chance.random_range(0..all);
        match fault {
            Fault::Split => {
                let left: Vec<usize> = (0..all).filter(|_| self.chance.random_bool(0.5)).collect();
                self.split(&left);
            }
            Fault::OneWay => {
                self.network.cut(machine, other);
                self.check_idle_links();
            }
            Fault::Isolate => self.isolate(machine),
            Fault::Slow => {
                let factor = self.chance.random_range(5..200);
                self.network.slow_down(machine, other, factor);
            }
            _ => {
                for link in self.network.of(machine) {
                    if self.chance.random_bool(0.5) {
                        self.reset(link, None);
                    }
                }
                return;
            }
        }
        let after = self.span(300, 60_000);
        self.undo(after, Undo::Heal);
    }

    /// Nothing passes between these machines and the others.
    pub(crate) fn split(&mut self, left: &[usize]) {
        for a in 0..self.machines.len() {
            for b in (0..self.machines.len()).filter(|b| left.contains(&a) != left.contains(b)) {
                self.network.cut(a, b);
            }
        }
        self.check_idle_links();
    }

    /// One machine hears and reaches nobody.
    pub(crate) fn isolate(&mut self, machine: usize) {
        self.split(&[machine]);
    }

    /// The network is as new.
    pub(crate) fn heal(&mut self) {
        self.network.heal();
        self.unstall();
    }

    fn look_if_awake(&mut self, machine: usize) {
        if !self.machines[machine].frozen {
            self.look(machine);
        }
    }

    pub(super) fn on_undo(&mut self, undo: Undo) {
        match undo {
            Undo::Start(machine) => self.start(machine),
            Undo::Thaw(machine) => self.thaw(machine),
            Undo::Heal => self.heal(),
            Undo::Remove(machine) => self.remove(machine),
            Undo::Gpus(machine) => {
                self.machines[machine].gone_gpus.clear();
                self.look_if_awake(machine);
            }
        }
    }

    /// No more faults, and all that there were are over.
    pub(crate) fn on_calm(&mut self) {
        self.striking = false;
        self.say(0, "CALM", format_args!(""));
        self.network.lossy = 0.0;
        self.network.gossip_loss = 0.0;
        self.on_undo(Undo::Heal);
        self.remove_copies();
        for machine in 0..self.machines.len() {
            self.thaw(machine);
            self.start(machine);
            self.on_undo(Undo::Gpus(machine));
        }
    }
}

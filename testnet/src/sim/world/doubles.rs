//! Machines that are two: one whose disk was copied to another, which starts beside it with the
//! same identity. And machines that are none any more: those that vanish for good.
//!
//! To a peer both twins are one node. It may have a connection with each; what it says goes over
//! the one that was opened last, as the daemon's does. The twins themselves cannot meet: who dials
//! its own identity is turned away.

use gpuvine::core::id::NodeId;

use super::{Undo, World};
use crate::sim::invariants::Fact;
use crate::sim::machine::Machine;
use crate::sim::network::LinkId;

/// Machines of one run that are copied, and that vanish, at most. Two that were copied may each
/// know only where the other's copy was, and nobody finds them then.
const COPIES_MAX: usize = 1;
const VANISHED_MAX: usize = 2;

impl World {
    /// The machine that a node is: of twins the one that was there first.
    pub(super) fn machine_of(&self, node: NodeId) -> Option<usize> {
        self.ids.get(&node).copied()
    }

    /// The machines that have an identity, all of them.
    fn holders(&self, node: NodeId) -> impl Iterator<Item = usize> {
        let copies = self.options.gpus.len()..self.machines.len();
        let twins = copies.filter(move |copy| self.machines[*copy].id == node);
        self.machine_of(node).into_iter().chain(twins)
    }

    /// A machine's link to a node: the other machine, and the link.
    pub(crate) fn link_to(&self, machine: usize, node: NodeId) -> Option<(usize, LinkId)> {
        let links = self.holders(node).filter(|holder| *holder != machine);
        let links = links.filter_map(|peer| Some((peer, self.network.link(machine, peer)?)));
        links.max_by_key(|(_, link)| *link)
    }

    /// All of a machine's links to a node.
    pub(super) fn links_to(&self, machine: usize, node: NodeId) -> Vec<LinkId> {
        let links = self.holders(node).filter_map(|peer| self.network.link(machine, peer));
        links.collect()
    }

    /// Whom a dial of these addresses reaches: the first where somebody is who has that identity.
    pub(super) fn dial_node(&mut self, from: usize, node: NodeId, addresses: &[String]) {
        if self.link_to(from, node).is_some() {
            return;
        }
        let named = addresses.iter().filter_map(|address| machine_at(address));
        let right = |at: &usize| self.machines.get(*at).is_some_and(|at| at.id == node);
        let named: Vec<usize> = named.filter(right).collect();
        let there = named.iter().copied().find(|at| self.machines[*at].is_up());
        if let Some(to) = there.or_else(|| named.first().copied()).or_else(|| self.machine_of(node))
        {
            self.dial(from, to);
        }
    }

    pub(super) fn dial_address(&mut self, from: usize, address: &str) {
        if let Some(to) = machine_at(address)
            && let Some(node) = self.machines.get(to).map(|there| there.id)
            && self.link_to(from, node).is_none()
        {
            self.dial(from, to);
        }
    }

    /// Whether two machines are one node.
    pub(super) fn are_twins(&self, one: usize, other: usize) -> bool {
        self.machines[one].id == self.machines[other].id
    }

    /// A machine's disk is copied, task folders and all, to one that starts beside it.
    pub(crate) fn copy(&mut self, original: usize) -> Option<usize> {
        let copies = self.machines.len() - self.options.gpus.len();
        let spared = original >= self.options.gpus.len() || self.machines[original].gone_for_good;
        if spared || copies >= COPIES_MAX {
            return None;
        }
        let copy = self.machines.len();
        let gpus = self.machines[original].gpus.len();
        let there = &self.machines[original];
        let disk = there.disk.copy();
        // Nothing of another boot is alive.
        let lost = there.processes.values().map(|process| (process.lease.clone(), None));
        let ended = there.endings.values();
        let ended = ended.map(|(lease, outcome, at)| (lease.clone(), Some((outcome.clone(), *at))));
        let folders: Vec<_> = lost.chain(ended).collect();
        self.machines.push(Machine { disk, ..Machine::twin(copy, gpus, there) });
        for (lease, end) in folders {
            let end = end.unwrap_or_else(|| (super::power::restarted(), self.wall()));
            self.machines[copy].endings.insert(lease.task, (lease, end.0, end.1));
        }
        self.new_clock(copy);
        self.checks.see(&Fact::Copied { original, copy });
        self.say(copy, "is copied", format_args!("from n{original}"));
        Some(copy)
    }

    pub(super) fn strike_copy(&mut self, original: usize) {
        if let Some(copy) = self.copy(original) {
            let (start, end) = (self.span(100, 20_000), self.span(5_000, 60_000));
            self.undo(start, Undo::Start(copy));
            self.undo(start + end, Undo::Remove(copy));
        }
    }

    pub(super) fn strike_vanish(&mut self, machine: usize) {
        let gone = |at: &&usize| self.machines[**at].gone_for_good;
        let originals: Vec<usize> = (0..self.options.gpus.len()).collect();
        let vanished = originals.iter().filter(gone).count();
        let left = originals.len() - vanished;
        let twin = self.holders(self.machines[machine].id).count() > 1;
        if vanished < VANISHED_MAX
            && left > 2
            && self.would_meet_without(machine)
            && !twin
            && !self.machines[machine].gone_for_good
        {
            self.remove(machine);
        }
    }

    /// Whether the others know enough of each other on their disks, old ones too, to meet again
    /// without this machine: if not, only people could tell them.
    fn would_meet_without(&self, machine: usize) -> bool {
        let others = (0..self.options.gpus.len()).filter(|at| *at != machine);
        let mut apart: Vec<usize> = others.filter(|at| !self.machines[*at].gone_for_good).collect();
        let remembers = |one: usize, other: usize| {
            let here = &self.machines[one];
            let images = [Some(&here.disk.image), here.disk.saved.as_ref(), here.old_disk.as_ref()];
            images.into_iter().flatten().all(|image| image.peers.contains(&other))
        };
        let mut edge: Vec<usize> = apart.pop().into_iter().collect();
        while let Some(at) = edge.pop() {
            edge.extend(apart.extract_if(.., |to| remembers(at, *to) || remembers(*to, at)));
        }
        apart.is_empty()
    }

    /// A machine is never seen again.
    pub(crate) fn remove(&mut self, machine: usize) {
        if !self.machines[machine].gone_for_good {
            self.power_off(machine);
            self.machines[machine].gone_for_good = true;
            self.machines[machine].endings.clear();
            self.say(machine, "vanishes", format_args!(""));
        }
    }

    /// The copies are found and switched off.
    pub(super) fn remove_copies(&mut self) {
        (self.options.gpus.len()..self.machines.len()).for_each(|copy| self.remove(copy));
    }

    /// The machines that are there, or may be again.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, &Machine)> {
        self.machines.iter().enumerate().filter(|(_, machine)| !machine.gone_for_good)
    }
}

/// The machine that listens at an address.
fn machine_at(address: &str) -> Option<usize> {
    address.strip_prefix('m').and_then(|number| number.parse().ok())
}

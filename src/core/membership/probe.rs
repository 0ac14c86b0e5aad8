//! Probing: whose turn it is, and what no answer means.

use rand::RngExt as _;

use super::datagram::{Kind, Rumour};
use super::{Effect, FEW, MEMBERS_MAX, Membership, REMEMBER, State};
use crate::core::id::NodeId;
use crate::core::outbox::Outbox;
use crate::core::time::{Duration, Instant};

/// Time between two probes, and after what part of it others are asked for help.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(1);
const HELP_AFTER: Duration = Duration::from_millis(500);

/// A question that has not been answered.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) node: NodeId,
    pub(super) life: u64,
    pub(super) seq: u32,
    pub(super) help_at: Option<Instant>,
}

impl Membership {
    /// Draws the conclusion from the last probe and begins another.
    pub(super) fn next_probe(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        if let Some(Probe { node, life, .. }) = self.probe.take() {
            self.suspect(Rumour { node, life, state: State::Suspect }, now, out);
        }
        self.parting.retain(|_, until| *until > now);
        self.doubted.retain(|_, until| *until > now);
        for node in self.dead.extract_if(.., |_, at| now.since(*at) > REMEMBER) {
            self.roll.remove(node.0);
        }
        let Some(node) = self.next_in_circle() else { return };
        self.seq = self.seq.wrapping_add(1);
        let (seq, help_at) = (self.seq, Some(now + HELP_AFTER));
        let life = self.roll.get(node).map_or(0, |member| member.life);
        self.probe = Some(Probe { node, life, seq, help_at });
        self.answer(node, Kind::Ping(seq), out);
        self.probe_at = Some(now + PROBE_EVERY);
    }

    /// The next of the circle that is thought to live.
    pub(super) fn next_in_circle(&mut self) -> Option<NodeId> {
        let others = if self.circle.is_empty() { self.others() } else { Vec::new() };
        let circle = if self.circle.is_empty() { &others } else { &self.circle };
        for _ in 0..circle.len() {
            self.turn = (self.turn + 1) % circle.len();
            let node = circle[self.turn];
            if self.roll.get(node).is_some_and(|member| member.state != State::Down) {
                return Some(node);
            }
        }
        None
    }

    /// Probes come at their own time, so that nodes do not fall into step.
    pub(super) fn keep_probing(&mut self, now: Instant) {
        if self.living.count() == 0 {
            self.probe_at = None;
            self.probe = None;
        } else if self.probe_at.is_none() {
            self.probe_at = Some(now + PROBE_EVERY.mul_f64(self.rng.random_range(0.05..1.0)));
            self.turn = self.rng.random_range(0..MEMBERS_MAX);
        }
    }

    /// The living of the circle.
    pub(super) fn others(&self) -> Vec<NodeId> {
        if self.circle.is_empty() {
            return self.alive().collect();
        }
        self.circle.iter().copied().filter(|node| self.is_alive(*node)).collect()
    }

    /// A few of them, but not this one.
    pub(super) fn some(&mut self, count: usize, but: Option<NodeId>) -> Vec<NodeId> {
        let mut others = if self.circle.is_empty() { self.others() } else { self.circle.clone() };
        let mut chosen = Vec::with_capacity(count);
        while chosen.len() < count && !others.is_empty() {
            let node = others.swap_remove(self.rng.random_range(0..others.len()));
            if Some(node) != but && self.is_alive(node) {
                chosen.push(node);
            }
        }
        chosen
    }

    /// No answer yet: perhaps it is only the way.
    pub(super) fn ask_for_help(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        if let Some(probe) = &mut self.probe
            && probe.help_at.take_if(|at| *at <= now).is_some()
        {
            let (seq, node) = (probe.seq, probe.node);
            for helper in self.some(FEW, Some(node)) {
                self.answer(helper, Kind::AskFor(seq, node), out);
            }
        }
    }
}

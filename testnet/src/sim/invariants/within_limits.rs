//! Everything is bounded: what a core keeps stays within what its machine promises.

use gpuvine::core::job::UNENDED_MAX;
use gpuvine::core::node::Load;

use super::{Fact, Invariant};

/// What a mesh of the simulator's size may ever need of each.
const MOST: Load = Load {
    timers: 2_000,
    parked: 64 * 256,
    waiting: 65_536,
    granted: 65_536,
    unended: UNENDED_MAX,
    leases: 256,
    attempts: 4_096 + 256,
};

/// What no core keeps to.
const LEAST: Load =
    Load { timers: 0, parked: 0, waiting: 0, granted: 0, unended: 0, leases: 0, attempts: 0 };

#[derive(Debug)]
pub(super) struct Rule {
    most: Load,
}

impl Default for Rule {
    fn default() -> Self {
        Self { most: MOST }
    }
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "within_limits"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        if matches!(fact, Fact::NoRoom) {
            self.most = LEAST;
        }
        let Fact::Turn { machine, node, .. } = fact else { return Ok(()) };
        let (load, most) = (node.load(), &self.most);
        let within = load.timers <= most.timers
            && load.parked <= most.parked
            && load.waiting <= most.waiting
            && load.granted <= most.granted
            && load.unended <= most.unended
            && load.leases <= most.leases
            && load.attempts <= most.attempts;
        if within { Ok(()) } else { Err(format!("n{machine} keeps {load:?}")) }
    }
}

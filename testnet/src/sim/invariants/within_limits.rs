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

#[derive(Debug)]
pub(super) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "within_limits"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Turn { machine, node, .. } = fact else { return Ok(()) };
        let load = node.load();
        let within = load.timers <= MOST.timers
            && load.parked <= MOST.parked
            && load.waiting <= MOST.waiting
            && load.granted <= MOST.granted
            && load.unended <= MOST.unended
            && load.leases <= MOST.leases
            && load.attempts <= MOST.attempts;
        if within { Ok(()) } else { Err(format!("n{machine} keeps {load:?}")) }
    }
}

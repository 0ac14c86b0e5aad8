//! What was measured, for people and for programs.

use gpuvine::core::time::Duration;
use serde::Serialize;

use crate::rank::nearest;

/// How long something took at many machines, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
}

impl Spread {
    /// The spread of some times; nothing of none.
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let rank = |percent| {
            let time: Option<Duration> = nearest(&times, percent);
            time.map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
        };
        Self { p50_ms: rank(50), p99_ms: rank(99) }
    }
}

/// What one node does in a second, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Messages that it sends, gossip included.
    pub messages: f64,
    /// Their bytes, without those of the transport.
    pub bytes: f64,
    /// Connections that it opens.
    pub dials: f64,
}

/// One line of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// How large the mesh is.
    pub nodes: usize,
    /// Links of a node, on average.
    pub links: f64,
    /// Until the controller knows of a changed lease.
    pub change_controller: Spread,
    /// Until each node does.
    pub change_all: Spread,
    /// Until each node knows one that joins.
    pub join_known: Spread,
    /// Until the one that joins knows everybody.
    pub join_knows_ms: f64,
    /// Until each node knows of a daemon's death.
    pub death_kill: Spread,
    /// The same if its machine lost power and no connection broke.
    pub death_power: Spread,
    /// Until each node follows another controller, after a kill.
    pub failover_kill: Spread,
    /// The same after a loss of power.
    pub failover_power: Spread,
    /// Members that were declared dead and were not.
    pub false_deaths: u64,
    /// When nothing happens.
    pub idle: Load,
    /// When leases change all the time.
    pub busy: Load,
    /// Changes a second while busy, in the whole mesh.
    pub busy_changes: u32,
    /// How fast it was simulated: the only figure that the seed does not decide.
    pub virtual_per_real_second: f64,
}

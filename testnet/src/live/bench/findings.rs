//! What a benchmark found.

use serde::Serialize;

use super::floors::Floors;
use super::idle::Idle;
use super::submissions::{Latency, Rate};
use crate::live::figures::{Figure, Spread, table};

/// All of it, from one run.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    /// Daemons.
    pub(super) nodes: usize,
    /// MiB of each copy.
    pub(super) mib: u64,
    /// What this machine can do at best.
    pub(super) floors: Floors,
    /// From the start of a daemon to its being a member.
    pub(super) join: Spread,
    /// What daemons cost that do nothing, if they were watched.
    pub(super) idle: Option<Idle>,
    /// Tasks one after the other.
    pub(super) latency: Latency,
    /// Tasks at once, with a GPU for each.
    pub(super) rates: Vec<Rate>,
    /// Tasks at once, all GPUs full.
    pub(super) full: Rate,
    /// A task's output to its user.
    pub(super) output_mib_s: f64,
    /// A user's input to the task.
    pub(super) input_mib_s: f64,
    /// From a death until every daemon knows of it.
    pub(super) death: Spread,
    /// From the controller's death until every daemon follows the next.
    pub(super) failover: Spread,
}

impl Findings {
    /// The table at the end.
    pub(super) fn table(&self) -> String {
        let figure = |what: &str, value, unit, promise| Figure {
            what: what.to_owned(),
            value,
            unit,
            promise,
        };
        let ms = |what: &str, value, promise| figure(what, value, "ms", promise);
        let (floors, latency) = (&self.floors, &self.latency);
        let mut figures = vec![
            ms("floor: start and end of a process, median", floors.spawn.median_ms, None),
            ms("floor: 1 KiB written and synced, median", floors.fdatasync.median_ms, None),
            figure("floor: copy over TCP", floors.tcp_mib_s, "MiB/s", None),
            figure("floor: copy over a libp2p stream", floors.libp2p_mib_s, "MiB/s", None),
            ms("joining the mesh, slowest", self.join.max_ms, Some("at most 1,000 ms")),
            ms("submit to process start, median", latency.start.median_ms, None),
            ms("submit to process start, 99th percentile", latency.start.p99_ms, None),
            ms("submit to first byte, median", latency.first_byte.median_ms, None),
            ms("submit to first byte, 99th percentile", latency.first_byte.p99_ms, None),
            ms("submit to exit, median", latency.exit.median_ms, Some("at most 8 ms")),
            ms("submit to exit, 99th percentile", latency.exit.p99_ms, Some("at most 25 ms")),
        ];
        for rate in &self.rates {
            let what = format!("tasks, {} in flight", rate.in_flight);
            let promise = (rate.in_flight == 8).then_some("at least 300 /s");
            figures.push(figure(&what, rate.per_second, "/s", promise));
        }
        let what = format!("tasks, {} in flight, all GPUs full", self.full.in_flight);
        figures.push(figure(&what, self.full.per_second, "/s", Some("at least 200 /s")));
        let share = self.output_mib_s / floors.libp2p_mib_s;
        figures.extend([
            figure("output of a task", self.output_mib_s, "MiB/s", None),
            figure("output, of a bare libp2p stream", share * 100.0, "%", Some("at least 80 %")),
            figure("input of a task", self.input_mib_s, "MiB/s", None),
            ms("a death known to all, slowest", self.death.max_ms, Some("at most 4,000 ms")),
            ms("failover, median", self.failover.median_ms, None),
            ms("failover, slowest", self.failover.max_ms, Some("at most 1,200 ms")),
        ]);
        if let Some(idle) = &self.idle {
            figures.extend([
                figure("idle, mean", idle.cpu_percent_mean, "% of a core", Some("under 1 %")),
                figure("idle, busiest", idle.cpu_percent_max, "% of a core", Some("under 1 %")),
                figure("memory, mean", idle.resident_mib_mean, "MiB", Some("at most 40 MiB")),
                figure("memory, largest", idle.resident_mib_max, "MiB", Some("at most 40 MiB")),
            ]);
        }
        table(&figures)
    }
}

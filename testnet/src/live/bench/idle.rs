//! What an idle node costs: processor time and memory, of every daemon.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::live::figures::Spread;
use crate::live::mesh::Mesh;
use crate::stopwatch::Stopwatch;

/// What nodes cost that do nothing.
#[derive(Debug, Serialize)]
pub(super) struct Idle {
    /// For how long they were watched.
    pub(super) seconds: f64,
    /// Of one core.
    pub(super) cpu_percent_mean: f64,
    /// Of the busiest.
    pub(super) cpu_percent_max: f64,
    /// Resident memory.
    pub(super) resident_mib_mean: f64,
    /// Of the largest.
    pub(super) resident_mib_max: f64,
}

/// Watches a mesh that does nothing.
pub(super) async fn watch(mesh: &Mesh, seconds: u64) -> Result<Idle> {
    // What joining caused (directories, connections) is not idling; let it pass first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = mesh.cpu_seconds()?;
    let watch = Stopwatch::start();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let seconds = watch.ms() / 1_000.0;
    let after = mesh.cpu_seconds()?;
    let percent: Vec<f64> =
        before.iter().zip(&after).map(|(one, two)| (two - one) / seconds * 100.0).collect();
    let resident = mesh.resident_mib()?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (cpu_percent_mean, resident_mib_mean) = (mean(&percent), mean(&resident));
    Ok(Idle {
        seconds,
        cpu_percent_mean,
        cpu_percent_max: Spread::of(percent).context("daemons ran")?.max_ms,
        resident_mib_mean,
        resident_mib_max: Spread::of(resident).context("daemons ran")?.max_ms,
    })
}

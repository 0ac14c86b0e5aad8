//! What an idle node costs in a mesh of many: processor time and memory, of every daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::command::print;
use super::figures::{Figure, Spread, table};
use super::mesh::{Mesh, Program};
use super::stopwatch::Stopwatch;
use super::talk::Talk;

/// What to measure.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many nodes.
    #[arg(long, default_value_t = 20, value_name = "N")]
    nodes: usize,
    /// For how long the mesh is watched doing nothing.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    seconds: u64,
    /// Print only the figures, as one JSON value.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Findings {
    nodes: usize,
    seconds: f64,
    cpu_percent_mean: f64,
    cpu_percent_max: f64,
    resident_mib_mean: f64,
    resident_mib_max: f64,
}

/// Starts the mesh, lets it rest, and measures.
///
/// # Errors
/// If the mesh does not come up or a daemon dies.
pub async fn run(program: &Program, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.nodes > 0, "--nodes 0: there is nothing to measure");
    let talk = Talk::new(arguments.json);
    talk.title(&format!("{} idle daemons", arguments.nodes));
    let mut mesh = Mesh::empty()?;
    for number in 1..=arguments.nodes {
        mesh.add(program, &format!("n{number}"), &["--gpus", "sim:2xA100-80G"]).await?;
    }
    mesh.settle().await?;
    talk.done("all see each other");
    // What joining caused (directories, connections) is not idling; let it pass first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    talk.step(&format!("watching for {} s", arguments.seconds));
    let before = mesh.cpu_seconds()?;
    let watch = Stopwatch::start();
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let seconds = watch.ms() / 1_000.0;
    let after = mesh.cpu_seconds()?;
    let percent: Vec<f64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| (after - before) / seconds * 100.0)
        .collect();
    let resident = mesh.resident_mib()?;
    let cpu = Spread::of(percent.clone()).context("daemons ran")?;
    let memory = Spread::of(resident.clone()).context("daemons ran")?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let findings = Findings {
        nodes: arguments.nodes,
        seconds,
        cpu_percent_mean: mean(&percent),
        cpu_percent_max: cpu.max_ms,
        resident_mib_mean: mean(&resident),
        resident_mib_max: memory.max_ms,
    };
    mesh.stop().await?;
    if arguments.json {
        return print(&serde_json::to_string_pretty(&findings)?);
    }
    let figure = |what, value, unit, promise| Figure { what, value, unit, promise };
    print(&format!(
        "\n{}",
        table(&[
            figure(
                "processor, mean of the nodes",
                findings.cpu_percent_mean,
                "% of a core",
                Some("under 1 %")
            ),
            figure(
                "processor, busiest node",
                findings.cpu_percent_max,
                "% of a core",
                Some("under 1 %")
            ),
            figure(
                "resident memory, mean",
                findings.resident_mib_mean,
                "MiB",
                Some("at most 40 MiB")
            ),
            figure(
                "resident memory, largest",
                findings.resident_mib_max,
                "MiB",
                Some("at most 40 MiB")
            ),
        ])
    ))
}

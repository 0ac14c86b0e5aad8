//! What gpuvine costs and how fast it is, on real daemons, beside what this machine can do at best.
//!
//! Every figure of one table comes from one run, and beside it stand the floors of the same run:
//! starting a process, syncing a file, copying over TCP and over a bare libp2p stream. The mesh
//! has one node without GPUs, at which tasks are submitted whose times are told, so that all of
//! them cross from one daemon to another.

mod findings;
mod floors;
mod idle;
mod losses;
mod streams;
mod submissions;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::findings::Findings;
use super::command::print;
use super::figures::Spread;
use super::mesh::{Mesh, Program};
use super::talk::Talk;
use crate::stopwatch::Stopwatch;

/// Submissions in flight when the rate is measured.
const IN_FLIGHT: [usize; 3] = [1, 8, 64];

/// GPUs that are kept full: of a model of which there are only these.
const SCARCE: usize = 4;

/// What to measure.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many nodes.
    #[arg(long, default_value_t = 5, value_name = "N")]
    nodes: usize,
    /// How many tasks are timed, and how many are counted for each rate.
    #[arg(long, default_value_t = 300, value_name = "N")]
    tasks: usize,
    /// How often a daemon is killed: for failovers, and again for other deaths.
    #[arg(long, default_value_t = 5, value_name = "N")]
    kills: usize,
    /// How many MiB are copied at a time.
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    mib: u64,
    /// For how long the mesh is watched doing nothing.
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    seconds: u64,
    /// Print only the figures, as one JSON value.
    #[arg(long)]
    json: bool,
}

/// Starts the mesh and measures.
///
/// # Errors
/// If the mesh does not come up, a daemon dies that should not, or a task fails.
pub async fn run(program: &Program, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.nodes >= 3, "--nodes {}: at least 3, for one is killed", arguments.nodes);
    ensure!(arguments.tasks > 0, "--tasks 0: there would be nothing to measure");
    ensure!(arguments.kills > 0, "--kills 0: there would be nothing to measure");
    ensure!((1..=900).contains(&arguments.mib), "--mib {}: from 1 to 900", arguments.mib);
    let findings = measure(program, arguments).await?;
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&findings)?),
        false => print(&format!("\n{}", findings.table())),
    }
}

async fn measure(program: &Program, arguments: &Arguments) -> Result<Findings> {
    let talk = Talk::new(arguments.json);
    let bytes = arguments.mib << 20;
    talk.title(&format!("A mesh of {} daemons", arguments.nodes));
    let mut mesh = Mesh::empty()?;
    let join = found(&mut mesh, program, arguments.nodes).await?;
    mesh.settle().await?;
    talk.done(&format!("all see each other; joining took {:.0} ms", join.median_ms));
    let idle = match arguments.seconds {
        0 => None,
        seconds => {
            talk.step(&format!("watching it do nothing for {seconds} s"));
            Some(idle::watch(&mesh, seconds).await?)
        }
    };
    talk.step("this machine's floors");
    let floors = floors::measure(mesh.root(), bytes).await?;
    talk.step(&format!("{} tasks, one after the other", arguments.tasks));
    let latency = submissions::latency(&mesh.nodes[0], arguments.tasks).await?;
    let mut rates = Vec::new();
    for in_flight in IN_FLIGHT {
        talk.step(&format!("{} tasks, {in_flight} in flight", arguments.tasks));
        let asks = ["--gpus", "1"];
        rates.push(submissions::rate(&mesh, &asks, arguments.tasks, in_flight).await?);
    }
    talk.step(&format!("{} tasks, 64 in flight, for {SCARCE} GPUs", arguments.tasks));
    let asks = ["--gpus", "1", "--gpu-model", "rtx4090"];
    let full = submissions::rate(&mesh, &asks, arguments.tasks, 64).await?;
    talk.step(&format!("{} MiB of output and of input", arguments.mib));
    let output_mib_s = submissions::output(&mesh.nodes[0], bytes).await?;
    let input_mib_s = submissions::input(&mesh.nodes[0], bytes).await?;
    talk.step(&format!("kill -9 of {} daemons that are not the controller", arguments.kills));
    let death = losses::deaths(&mut mesh, arguments.kills).await?;
    talk.step(&format!("kill -9 of {} controllers", arguments.kills));
    let failover = losses::failovers(&mut mesh, arguments.kills).await?;
    mesh.stop().await?;
    Ok(Findings {
        nodes: arguments.nodes,
        mib: arguments.mib,
        floors,
        join,
        idle,
        latency,
        rates,
        full,
        output_mib_s,
        input_mib_s,
        death,
        failover,
    })
}

/// The first node submits and has no GPUs; the second has also the scarce ones.
async fn found(mesh: &mut Mesh, program: &Program, nodes: usize) -> Result<Spread> {
    // Room for all that are in flight.
    let each = 64_usize.div_ceil(nodes - 1);
    let mut joins = Vec::new();
    for number in 0..nodes {
        let gpus = match number {
            0 => "none".to_owned(),
            1 => format!("sim:{each}xA100-80G,{SCARCE}xRTX4090-24G"),
            _ => format!("sim:{each}xA100-80G"),
        };
        let watch = Stopwatch::start();
        mesh.add(program, &format!("n{}", number + 1), &["--gpus", &gpus]).await?;
        let joined = mesh.nodes.last().context("it was added")?;
        let all = move |view: &super::mesh::View| {
            let alive = view.nodes.iter().filter(|node| node.is_alive()).count();
            (alive == number + 1 && view.controller().is_some()).then_some(())
        };
        joined.until("it is a member and knows the controller", all).await?;
        if number > 0 {
            joins.push(watch.ms());
        }
    }
    Spread::of(joins).context("somebody joined")
}

//! `gpuvine gpus`: the board.

use super::exit::{Exit, Failure};
use super::output::{Printer, ago};
use crate::api::GpuView;
use crate::api::client::Client;
use crate::api::words::gib;
use crate::clock;

/// Show every GPU of the mesh: where, what, who uses it, and why it is not free
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine gpus --free")]
pub(crate) struct Args {
    /// Only those that are free
    #[arg(long)]
    free: bool,
    /// Also those of nodes that have left
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(args: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let mut gpus = client.gpus().await?;
    gpus.retain(|gpu| !args.free || gpu.state == "free");
    gpus.retain(|gpu| args.all || gpu.state != "left");
    let now = clock::wall().secs();
    printer.value(&gpus, |gpus| board(gpus, now, printer))
}

pub(crate) fn board(gpus: &[GpuView], now: u64, printer: &Printer) -> String {
    let header = [
        "NODE", "GPU", "MODEL", "MEMORY", "FREE", "UTIL", "STATE", "JOB", "NAME", "OWNER", "SINCE",
        "WHY",
    ];
    let row = |gpu: &GpuView| {
        // A driver that does not say how much there is does not mean that there is none.
        let known = gpu.memory_bytes > 0;
        vec![
            gpu.node_name.clone(),
            gpu.index.to_string(),
            gpu.model.clone(),
            if known { gib(gpu.memory_bytes) } else { "unknown".into() },
            if known { gib(gpu.memory_free_bytes) } else { String::new() },
            gpu.utilization.map_or_else(String::new, |util| format!("{util}%")),
            gpu.state.clone(),
            gpu.job.clone().unwrap_or_default(),
            gpu.job_name.clone().unwrap_or_default(),
            gpu.owner.clone().unwrap_or_default(),
            ago(gpu.since.as_deref(), now),
            gpu.why.clone().unwrap_or_default(),
        ]
    };
    if gpus.is_empty() {
        return "no GPUs; `gpuvine nodes` says why each node has none".into();
    }
    printer.table(&header, gpus.iter().map(row).collect())
}

//! `gpuvine jobs`

use super::exit::{Exit, Failure};
use super::output::{Printer, ago};
use crate::api::JobView;
use crate::api::client::Client;
use crate::clock;

/// List jobs: those submitted here, and why they wait
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine jobs --all")]
pub(crate) struct Args {
    /// Also jobs of other nodes, as far as they run
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(args: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let jobs = client.jobs(args.all).await?;
    let now = clock::wall().secs();
    printer.value(&jobs, |jobs| table(jobs, now, printer))
}

pub(crate) fn table(jobs: &[JobView], now: u64, printer: &Printer) -> String {
    let header = ["JOB", "NAME", "OWNER", "STATE", "AGE", "GPUS", "NODE", "HOME", "REASON"];
    let row = |job: &JobView| {
        let since = job.ended.as_ref().or(job.started.as_ref()).or(job.submitted.as_ref());
        vec![
            job.id.clone(),
            job.name.clone(),
            job.owner.clone(),
            job.state.clone(),
            ago(since.map(String::as_str), now),
            job.gpus_needed.to_string(),
            job.node_name.clone().unwrap_or_default(),
            job.home.clone(),
            job.reason.clone().unwrap_or_default(),
        ]
    };
    if jobs.is_empty() {
        return "no jobs".into();
    }
    printer.table(&header, jobs.iter().map(row).collect())
}

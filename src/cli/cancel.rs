//! `gpuvine cancel`

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::client::Client;

/// End jobs: SIGTERM, and after the node's grace SIGKILL
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine cancel 3f9k")]
pub(crate) struct Args {
    /// The jobs: ids, or beginnings of ids
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// Without grace: SIGKILL at once
    #[arg(long)]
    now: bool,
}

pub(crate) async fn run(args: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let mut views = Vec::new();
    for job in &args.jobs {
        views.push(client.cancel(job, args.now).await?);
    }
    printer.value(&views, |views| {
        let line = |job: &crate::api::JobView| format!("{} {}", job.id, job.state);
        views.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

//! `gpuvine cancel`

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::JobView;
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
    let (mut views, mut failed) = (Vec::new(), None);
    // One that cannot be cancelled does not save the others.
    for job in &args.jobs {
        match client.cancel(job, args.now).await {
            Ok(view) => views.push(view),
            Err(error) => {
                let failure = Failure::from(error);
                if let Some(earlier) = failed.replace(failure) {
                    printer.tell(&earlier);
                }
            }
        }
    }
    // Programs get one value: the failure, or all that was done.
    if !(views.is_empty() || printer.json() && failed.is_some()) {
        printer.value(&views, |views| {
            let line = |job: &JobView| format!("{} {}", job.id, job.state);
            views.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
    }
    failed.map_or(Ok(Exit::Done), Err)
}

//! `gpuvine status`

use super::exit::{Exit, Failure};
use super::output::{Printer, clean};
use crate::api::Status;
use crate::api::client::Client;

/// Show this node and its mesh: who is controller, since which term, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine status --json | jq .controller")]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let status = client.status().await?;
    printer.value(&status, words)
}

pub(crate) fn words(status: &Status) -> String {
    let controller = match &status.controller {
        Some(controller) => format!(
            "{}{}, term {}: {}",
            controller.name,
            if controller.me { " (this node)" } else { "" },
            controller.term,
            controller.why
        ),
        None => "none known".into(),
    };
    let up = humantime::format_duration(crate::core::time::Duration::from_secs(status.uptime_secs));
    let mut lines = vec![
        ("node", format!("{} ({})", status.name, status.node)),
        ("mesh", status.mesh.clone()),
        ("state", format!("{}, up {up}, start {}", status.state, status.incarnation)),
        ("controller", controller),
        (
            "members",
            format!(
                "{} alive of {} known, linked with {}",
                status.members_alive, status.members_known, status.links
            ),
        ),
        ("gpus", format!("{} free of {}", status.gpus_free, status.gpus_total)),
        ("jobs here", format!("{} running, {} waiting", status.jobs_running, status.jobs_waiting)),
        ("version", status.version.clone()),
    ];
    lines.extend(status.addresses.iter().map(|address| ("address", address.clone())));
    lines.extend(status.notes.iter().map(|note| ("note", note.clone())));
    let line = |(key, value): &(&str, String)| format!("{key:<11} {}", clean(value));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

//! `gpuvine nodes`

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::NodeView;
use crate::api::client::Client;
use crate::api::words::gib;

/// List the nodes of the mesh
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine nodes --wait 5    # returns when five are alive")]
pub(crate) struct Args {
    /// Wait until so many are alive
    #[arg(long, value_name = "N")]
    wait: Option<usize>,
    /// Also those that have left
    #[arg(short, long)]
    all: bool,
}

pub(crate) async fn run(args: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let mut seen = 0;
    let mut nodes = loop {
        let nodes = client.nodes().await?;
        let alive = nodes.iter().filter(|node| node.is_alive()).count();
        if args.wait.is_none_or(|wanted| alive >= wanted) {
            break nodes;
        }
        seen = client.changes(seen).await?;
    };
    nodes.retain(|node| args.all || node.state != "left");
    printer.value(&nodes, |nodes| table(nodes, printer))
}

pub(crate) fn table(nodes: &[NodeView], printer: &Printer) -> String {
    let header =
        ["NAME", "STATE", "ROLE", "GPUS", "FREE", "CPUS", "MEMORY", "VERSION", "ID", "NOTE"];
    let row = |node: &NodeView| {
        let role = match (node.controller, node.me) {
            (true, true) => "controller, this node",
            (true, false) => "controller",
            (false, true) => "this node",
            (false, false) => "",
        };
        vec![
            node.name.clone(),
            node.state.clone(),
            role.to_owned(),
            node.gpus_total.to_string(),
            node.gpus_free.to_string(),
            node.cpus.to_string(),
            gib(node.memory_bytes),
            node.version.clone(),
            node.id.clone(),
            node.gpus_note.clone().unwrap_or_default(),
        ]
    };
    printer.table(&header, nodes.iter().map(row).collect())
}

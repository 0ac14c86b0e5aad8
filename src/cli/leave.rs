//! `gpuvine leave`

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::client::Client;

/// Say goodbye to the mesh and stop the daemon; its running tasks run on
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine leave    # and later: gpuvine up")]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    client.leave().await?;
    printer.value(&serde_json::json!({ "left": true }), |_| "left the mesh".into())
}

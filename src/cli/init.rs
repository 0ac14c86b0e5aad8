//! `gpuvine init`

use super::args::Globals;
use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::daemon::found;

/// Found a mesh: make its key, and make this machine its first member
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine init && gpuvine up")]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, globals: &Globals, printer: &Printer) -> Result<Exit, Failure> {
    let paths = globals.paths()?;
    let founded = found::init(&paths)?;
    printer.value(&founded, |founded| {
        format!(
            "founded mesh {}\nits key is {}: keep a copy of it where nobody else can read it\n\
             next: `gpuvine up`, and `gpuvine invite` for each further machine",
            founded.mesh, founded.mesh_key
        )
    })
}

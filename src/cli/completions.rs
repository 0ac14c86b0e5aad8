//! `gpuvine completions`

use clap::CommandFactory as _;

use super::exit::{Exit, Failure};
use super::output::Printer;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine completions bash > /etc/bash_completion.d/gpuvine")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, printer: &Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "gpuvine", &mut script);
    printer.line(&String::from_utf8_lossy(&script))
}

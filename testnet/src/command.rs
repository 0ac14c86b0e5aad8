//! The command line of `testnet`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "live")]
use crate::live;
use crate::{exhaustive, scale, sim};

/// gpuvine on one machine: the core in virtual time with every fault there is, and a live mesh of
/// daemons with simulated GPUs.
#[derive(Debug, Parser)]
#[command(name = "testnet", version, after_help = "Example: testnet demo")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate one run and print what happened, a line for each event.
    #[command(after_help = "Example: testnet sim --seed 7 --faults kill,split --quiet")]
    Sim(sim::command::Sim),
    /// Simulate the run of a seed exactly as a sweep did.
    #[command(after_help = "Example: testnet replay 4711")]
    Replay(sim::command::Replay),
    /// Simulate many runs on all cores, and stop at the first that breaks a rule.
    #[command(after_help = "Example: testnet sweep --seeds 1000 --from 5")]
    Sweep(sim::command::Sweep),
    /// Simulate the pinned stories: one for each fault that the core once had or must never have.
    #[command(after_help = "Example: testnet scenarios")]
    Scenarios(sim::command::Scenarios),
    /// Measure meshes of growing size in virtual time: a table, and a plot.
    #[command(after_help = "Example: testnet scale --nodes 10,100,1000 --plot scale.svg")]
    Scale(scale::command::Scale),
    /// Visit every state that the core can reach within small limits.
    #[command(after_help = "Example: testnet exhaust")]
    Exhaust(exhaustive::command::Exhaust),
    #[cfg(feature = "live")]
    #[command(flatten)]
    Live(live::command::Command),
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Sim(arguments) => arguments.run(),
        Command::Replay(arguments) => arguments.run(),
        Command::Sweep(arguments) => arguments.run(),
        Command::Scenarios(arguments) => arguments.run(),
        Command::Scale(arguments) => arguments.run(),
        Command::Exhaust(arguments) => arguments.run(),
        #[cfg(feature = "live")]
        Command::Live(command) => command.run(),
    }
}

/// Prints a line to standard output. A reader who has gone is no failure, but the end.
pub(crate) fn print(line: &str) -> bool {
    writeln!(std::io::stdout(), "{line}").is_ok()
}

/// Tells a line on standard error. Without one there is nobody to tell.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "testnet: {line}");
}

//! The command line: one file for each subcommand; here they are only listed.

mod args;
mod cancel;
mod completions;
mod exit;
mod gpus;
mod init;
mod invite;
mod jobs;
mod leave;
mod logs;
mod nodes;
mod output;
mod run;
mod signals;
mod status;
#[cfg(test)]
mod tests;
mod ticket;
mod up;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser as _, Subcommand};

use self::args::Globals;
use self::exit::{Exit, Failure};
use self::output::Printer;

/// One pool out of everybody's GPU machines, without a head node.
#[derive(Debug, clap::Parser)]
#[command(
    name = "gpuvine",
    version,
    max_term_width = 100,
    after_help = "Example:\n  gpuvine run --gpus 1 -- python train.py\n\nThe exit code of `run` is the command's. Otherwise: 0 done, 1 failed, 2 wrong usage,\n3 the daemon cannot be reached."
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cancel(cancel::Args),
    Completions(completions::Args),
    Gpus(gpus::Args),
    Init(init::Args),
    Invite(invite::Args),
    Jobs(jobs::Args),
    Leave(leave::Args),
    Logs(logs::Args),
    Nodes(nodes::Args),
    Run(run::Args),
    Status(status::Args),
    Up(up::Args),
}

/// Parses the command line and does what it says; `arguments` begin with the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no failure; clap knows which is which.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let printer = Printer::new(&cli.globals);
    match dispatch(cli, &printer) {
        Ok(exit) => exit.code(),
        Err(failure) => printer.failure(&failure).code(),
    }
}

fn dispatch(cli: Cli, printer: &Printer) -> Result<Exit, Failure> {
    let globals = cli.globals;
    match cli.command {
        Command::Completions(args) => completions::run(&args, printer),
        Command::Init(args) => init::run(args, &globals, printer),
        Command::Up(args) => up::run(args, &globals, printer),
        command => {
            // One thread is enough to wait for one daemon, and starts at once.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let exit = runtime.block_on(ask(command, &globals, printer));
            // A read of standard input may hang for ever; the process ends all the same.
            runtime.shutdown_background();
            exit
        }
    }
}

async fn ask(command: Command, globals: &Globals, printer: &Printer) -> Result<Exit, Failure> {
    let client = globals.client()?;
    match command {
        Command::Cancel(args) => cancel::run(args, &client, printer).await,
        Command::Gpus(args) => gpus::run(args, &client, printer).await,
        Command::Invite(args) => invite::run(args, globals, &client, printer).await,
        Command::Jobs(args) => jobs::run(args, &client, printer).await,
        Command::Leave(args) => leave::run(args, &client, printer).await,
        Command::Logs(args) => logs::run(args, &client, printer).await,
        Command::Nodes(args) => nodes::run(args, &client, printer).await,
        Command::Run(args) => run::run(args, globals, &client, printer).await,
        Command::Status(args) => status::run(args, &client, printer).await,
        // These need no daemon.
        Command::Completions(_) | Command::Init(_) | Command::Up(_) => Ok(Exit::Done),
    }
}

//! The command line of `testnet`.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};

use super::mesh::Program;
use super::talk::Talk;
use super::{bench, demo, up};

/// The first argument with which this program starts itself as `gpuvine`.
pub const AS_GPUVINE: &str = "__gpuvine";

/// What is done with real daemons.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Five nodes are joined, used, robbed of their controller, and go on.
    #[command(after_help = "Example: testnet demo --json > figures.json")]
    Demo {
        /// Print only the figures, as one JSON value.
        #[arg(long)]
        json: bool,
    },
    /// Start a mesh, keep it running, and tell how to use it from another terminal.
    #[command(after_help = "Example: testnet up --nodes 3 --gpus 2xA100-80G")]
    Up(up::Arguments),
    /// Measure how fast tasks, copies and failovers are and what an idle node costs, beside this
    /// machine's own floors.
    #[command(after_help = "Example: testnet bench --nodes 20 --tasks 500 --json > bench.json")]
    Bench(bench::Arguments),
}

impl Command {
    /// Does what it says.
    pub(crate) fn run(self) -> ExitCode {
        let result = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")
            .and_then(|runtime| runtime.block_on(interruptible(self)));
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // Without a standard error there is nobody to tell.
                let _ = writeln!(std::io::stderr(), "testnet: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// When this program was started as `gpuvine`, or as a keeper of one: what it ends with.
pub fn as_gpuvine() -> Option<ExitCode> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let first = arguments.get(1)?;
    if first == gpuvine::run::KEEPER {
        return Some(gpuvine::run::keeper_main(&arguments[2..]));
    }
    if first == AS_GPUVINE {
        arguments.remove(1);
        return Some(gpuvine::cli::main(arguments));
    }
    None
}

/// Ctrl-C, SIGTERM and SIGHUP drop what runs, and with it every process and file of the mesh.
async fn interruptible(command: Command) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // How a mesh to play with ends, and no other command.
    let is_end = matches!(command, Command::Up(_));
    let why = tokio::select! {
        result = run(command) => return result,
        _ = tokio::signal::ctrl_c() => "interrupted",
        _ = term.recv() => "terminated",
        // Its terminal was closed.
        _ = hangup.recv() => "hung up",
    };
    let told = "the mesh is gone, with its tasks and files";
    anyhow::ensure!(is_end, "{why}: {told}");
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "testnet: {told}");
    Ok(())
}

async fn run(command: Command) -> Result<()> {
    let program = Program {
        path: std::env::current_exe().context("cannot find this program's own file")?,
        prefix: vec![AS_GPUVINE.into()],
    };
    match command {
        Command::Demo { json } => {
            let talk = Talk::new(json);
            let findings = tokio::time::timeout(demo::LIMIT, demo::play(&program, &talk))
                .await
                .context("the demo is stuck")??;
            match json {
                true => print(&serde_json::to_string_pretty(&findings)?),
                false => {
                    let slow =
                        "\n\nA debug build is several times slower: --release measures fairly.";
                    let slow = if cfg!(debug_assertions) { slow } else { "" };
                    print(&format!(
                        "\n{}{slow}\n\nTo try it yourself: cargo run --release -p testnet -- up",
                        findings.table()
                    ))
                }
            }
        }
        Command::Up(arguments) => up::run(&program, &arguments).await,
        Command::Bench(arguments) => bench::run(&program, &arguments).await,
    }
}

/// Prints to standard output. A reader who has gone is no failure.
pub(super) fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

//! `gpuvine up`

use super::args::{Color, Globals};
use super::exit::{Exit, Failure};
use super::output::Printer;
use super::ticket::Join;
use crate::config::Config;
use crate::daemon::{found, start};

/// Run this machine's daemon: join the mesh, offer its GPUs, serve its users
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  gpuvine up --join gpuvine1...       # the first time\n  gpuvine up --join - < ticket        # the same, with nothing in the shell's history\n  gpuvine up                          # ever after\n  gpuvine up --gpus sim:4xA100-80G    # with GPUs that do not exist"
)]
pub(crate) struct Args {
    /// Join a mesh by a ticket from `gpuvine invite`, needed once: the ticket, @FILE, or - for
    /// standard input
    #[arg(long, value_name = "TICKET")]
    join: Option<Join>,
    /// Listen on this multiaddress; may be repeated [default: port 47600 on TCP and QUIC]
    #[arg(long, value_name = "MULTIADDR")]
    listen: Vec<String>,
    /// Dial this multiaddress; may be repeated
    #[arg(long = "peer", value_name = "MULTIADDR")]
    peers: Vec<String>,
    /// Do not look for members on the local network
    #[arg(long)]
    no_mdns: bool,
    /// Which GPUs to offer: auto, none, or sim:4xA100-80G,2xRTX4090-24G
    #[arg(long, value_name = "WHICH")]
    gpus: Option<String>,
    /// What to call the machine [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A word about the machine; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Wish to be controller: higher is better placed [default: 0]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i32>,
}

pub(crate) fn run(args: Args, globals: &Globals, printer: &Printer) -> Result<Exit, Failure> {
    log_to_stderr(printer.verbose(), globals.color);
    let paths = globals.paths()?;
    let mut peers = args.peers;
    let ticket = args.join.map(|join| join.read(std::io::stdin())).transpose()?;
    if let Some(ticket) = &ticket {
        peers.extend(ticket.addresses.iter().cloned());
    }
    let mut overrides = globals.overrides();
    overrides.name = args.name;
    overrides.listen = args.listen;
    overrides.peers = peers;
    overrides.no_mdns = args.no_mdns;
    overrides.gpus = args.gpus;
    overrides.labels = args.labels.into_iter().collect();
    overrides.priority = args.priority;
    let config = Config::resolve(paths, overrides, &|name| std::env::var_os(name))?;
    // What is mistyped is told before anything is joined or opened.
    start::check(&config).map_err(|wrong| Failure::usage(format!("{wrong:#}")))?;
    if let Some(ticket) = &ticket {
        found::join(&config.paths, ticket)?;
    }
    start::run(config, |ready| {
        // The line that says that it serves; whoever started it may be waiting.
        let _ = printer.value(&ready, |ready| match ready.admitted {
            true => format!("{} serves at {}", ready.name, ready.socket),
            false => format!(
                "{} serves at {}, but is no member yet: it looks for one that admits it",
                ready.name, ready.socket
            ),
        });
    })?;
    Ok(Exit::Done)
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form KEY=VALUE")),
    }
}

/// The daemon's log: to standard error, as much as `GPUVINE_LOG` or `-v` says.
fn log_to_stderr(verbose: u8, color: Color) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "gpuvine=info,warn",
        1 => "gpuvine=debug,info",
        _ => "gpuvine=trace,debug",
    };
    let filter = EnvFilter::try_from_env("GPUVINE_LOG").unwrap_or_else(|_| default.into());
    // Set already when several daemons are in one process, as in tests.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(color.on(&std::io::stderr()))
        .try_init();
}

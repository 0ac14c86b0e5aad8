//! The command `testnet scale`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{measure, plot, table};
use crate::command::{print, tell};

/// Nodes of the smallest mesh that can lose its controller and another, and of the largest that
/// the core holds with room to spare.
const NODES: std::ops::RangeInclusive<u64> = 4..=15_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// How many nodes, for each mesh
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "10,100,1000",
        value_parser = clap::value_parser!(u64).range(NODES)
    )]
    nodes: Vec<u64>,
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the figures into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Scale {
    pub(crate) fn run(&self) -> ExitCode {
        let mut all = Vec::new();
        for nodes in &self.nodes {
            let bar = indicatif::ProgressBar::new_spinner();
            let mut told = |what: &str| {
                if bar.is_hidden() {
                    tell(&format!("{nodes} nodes: {what}"));
                }
                bar.set_message(format!("{nodes} nodes: {what}"));
                bar.tick();
            };
            let measured =
                measure(usize::try_from(*nodes).unwrap_or(usize::MAX), self.seed, &mut told);
            bar.finish_and_clear();
            match measured {
                Ok(figures) => all.push(figures),
                Err(why) => {
                    tell(&format!("{nodes} nodes: {why}"));
                    return ExitCode::FAILURE;
                }
            }
        }
        let text = if self.json {
            serde_json::to_string_pretty(&all).unwrap_or_else(|error| error.to_string())
        } else {
            table::table(&all)
        };
        print(&text);
        if let Some(file) = &self.plot
            && let Err(error) = plot::plot(&all, file)
        {
            tell(&format!("{}: {error}", file.display()));
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

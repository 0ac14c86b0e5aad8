//! The simulator's commands.

use std::process::ExitCode;

use gpuvine::core::time::Duration;

use super::options::{Faults, Options, Wishes};
use super::world::World;
use super::{scenarios, sweep};
use crate::command::{print, tell};

/// What can be fixed of a run; the seed decides the rest.
#[derive(Debug, clap::Args)]
pub(crate) struct Fixed {
    /// Machines
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// GPUs in all
    #[arg(long, value_name = "N")]
    gpus: Option<usize>,
    /// Jobs
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Virtual hours of faults; may be a fraction
    #[arg(long, value_name = "HOURS")]
    hours: Option<f64>,
    /// What may go wrong: all, none, or some, with commas between them
    #[arg(long, value_name = "SET")]
    faults: Option<Faults>,
}

impl Fixed {
    fn wishes(&self) -> Wishes {
        let hours = self.hours.filter(|hours| hours.is_finite() && *hours > 0.0);
        Wishes {
            nodes: self.nodes,
            gpus: self.gpus,
            jobs: self.jobs,
            chaos: hours.map(|hours| Duration::from_secs_f64((hours * 3_600.0).min(1e7))),
            faults: self.faults.clone(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sim {
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    fixed: Fixed,
    /// Only the summary
    #[arg(short, long)]
    quiet: bool,
}

impl Sim {
    pub(crate) fn run(&self) -> ExitCode {
        show(Options::draw(self.seed, &self.fixed.wishes()), self.quiet)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// The seed that the sweep printed
    seed: u64,
    /// Only the summary
    #[arg(short, long)]
    quiet: bool,
}

impl Replay {
    pub(crate) fn run(&self) -> ExitCode {
        show(Options::draw(self.seed, &Wishes::default()), self.quiet)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// How many runs
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed [default: another each time]
    #[arg(long)]
    from: Option<u64>,
    #[command(flatten)]
    fixed: Fixed,
}

impl Sweep {
    pub(crate) fn run(&self) -> ExitCode {
        let from = self.from.unwrap_or_else(sweep::fresh);
        tell(&format!("{} seeds from {from}", self.seeds));
        match sweep::sweep(from, self.seeds, &self.fixed.wishes()) {
            Ok(done) => {
                print(&done.to_string());
                ExitCode::SUCCESS
            }
            Err(failure) => {
                print(&failure.to_string());
                ExitCode::FAILURE
            }
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scenarios {
    /// Only the one with this name
    name: Option<String>,
}

impl Scenarios {
    pub(crate) fn run(&self) -> ExitCode {
        let wanted = |name: &str| self.name.as_deref().is_none_or(|wanted| wanted == name);
        let mut failed = 0;
        let mut played = 0;
        for scenario in scenarios::all().filter(|scenario| wanted(scenario.name)) {
            played += 1;
            let world = (scenario.play)();
            let result = match world.violation() {
                None => "ok".to_owned(),
                Some(broken) => {
                    failed += 1;
                    world.trace().last().iter().for_each(|line| tell(line));
                    format!("BROKEN {}: {}", broken.rule, broken.what)
                }
            };
            print(&format!("{:<60} {result}", scenario.name));
        }
        if played == 0 {
            tell("there is no such scenario; without a name all of them are listed");
        }
        if failed > 0 || played == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Runs, prints, and says how it went.
fn show(options: Options, quiet: bool) -> ExitCode {
    let summary = options.to_string();
    let world = super::run(options, !quiet, None);
    if !quiet {
        for line in world.trace().lines() {
            if !print(line) {
                return ExitCode::SUCCESS;
            }
        }
    }
    print(&summary);
    print(&verdict(&world));
    if world.violation().is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn verdict(world: &World) -> String {
    let done = format!(
        "{} events in {:.0} virtual seconds, trace {:016x}",
        world.events(),
        world.elapsed().as_secs_f64(),
        world.trace().digest()
    );
    match world.violation() {
        None => format!("no rule is broken: {done}"),
        Some(broken) => format!("BROKEN {}: {}\n{done}", broken.rule, broken.what),
    }
}

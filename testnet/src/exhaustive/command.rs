//! The command `testnet exhaust`.

use std::process::ExitCode;

use gpuvine::core::time::Duration;
use indicatif::HumanCount;

use super::checker::{Found, Model, search};
use super::electing::Electing;
use super::leasing::Leasing;
use super::models;
use crate::command::{print, tell};
use crate::stopwatch::Stopwatch;

/// How long a model may take before it says how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Exhaust {
    /// Only the model with this name
    model: Option<String>,
}

/// What all models came to.
#[derive(Debug, Default)]
struct Sum {
    models: usize,
    explored: u64,
    unique: u64,
    depth: u32,
    time: Duration,
    failed: usize,
}

impl Exhaust {
    pub(crate) fn run(&self) -> ExitCode {
        let wanted = |name: &str| self.model.as_deref().is_none_or(|wanted| wanted == name);
        let mut sum = Sum::default();
        for named in models::LEASES.iter().filter(|named| wanted(named.name)) {
            let mut model = Leasing::new(named.limits, None);
            sum.check(named.name, &named.limits.to_string(), &mut model);
        }
        for (name, limits) in models::ELECTIONS.iter().filter(|(name, _)| wanted(name)) {
            sum.check(name, &limits.to_string(), &mut Electing::new(*limits, None));
        }
        if sum.models == 0 {
            tell("there is no such model; without a name all of them are checked");
            return ExitCode::FAILURE;
        }
        sum.conclude()
    }
}

impl Sum {
    /// Visits all states of a model and says what came of it.
    fn check<M: Model>(&mut self, name: &str, limits: &str, model: &mut M) {
        let watch = Stopwatch::start();
        let mut told = PATIENCE;
        let found = search(model, &mut |known, visited| {
            if watch.elapsed() >= told {
                told = watch.elapsed() + PATIENCE;
                let (visited, known) = (HumanCount(visited as u64), HumanCount(known as u64));
                tell(&format!("{name}: {visited} states visited of {known} known"));
            }
        });
        let time = watch.elapsed();
        let Found { explored, unique, depth, .. } = found;
        print(&format!(
            "{name}: {limits}: {explored} states explored, {unique} unique, depth {depth}, {:.1} s",
            time.as_secs_f64()
        ));
        self.models += 1;
        self.explored += explored;
        self.unique += unique;
        self.depth = self.depth.max(depth);
        self.time += time;
        if let Some(broken) = found.broken {
            print(&broken.to_string());
            self.failed += 1;
            return;
        }
        let missing = model.missing(found.sights);
        if !missing.is_empty() {
            print(&format!("BROKEN reaches: it was never seen that {}", missing.join(", ")));
            self.failed += 1;
        }
    }

    fn conclude(&self) -> ExitCode {
        let verdict = if self.failed == 0 { "safety holds in all of them" } else { "BROKEN" };
        print(&format!(
            "{} models, {} states explored, {} unique, depth {}, {:.1} s: {verdict}",
            self.models,
            self.explored,
            self.unique,
            self.depth,
            self.time.as_secs_f64()
        ));
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

//! Many runs on all cores; of the first that breaks a rule, the smallest that still does.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuvine::core::time::Duration;

use super::invariants::Violation;
use super::options::{Fault, Faults, Options, Wishes};
use super::sabotage::Sabotage;

/// Smaller runs that are tried of one that fails.
const TRIES_MAX: usize = 60;

/// How a sweep went that found nothing.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Runs.
    pub seeds: u64,
    /// Events in all of them.
    pub events: u64,
    /// Virtual time in all of them.
    pub time: Duration,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.time.as_secs_f64() / 3_600.0;
        let (seeds, events) = (self.seeds, self.events);
        write!(f, "{seeds} seeds, {events} events, {hours:.0} virtual hours: no rule is broken")
    }
}

/// A run that breaks a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What is fixed to make it small.
    pub wishes: Wishes,
    /// What it breaks.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { rule, what } = &self.violation;
        writeln!(f, "BROKEN {rule}: {what}")?;
        write!(f, "replay: testnet sim --seed {}", self.seed)?;
        let Wishes { nodes, gpus, jobs, chaos, faults } = &self.wishes;
        for (flag, value) in [("nodes", nodes), ("gpus", gpus), ("jobs", jobs)] {
            if let Some(value) = value {
                write!(f, " --{flag} {value}")?;
            }
        }
        if let Some(chaos) = chaos {
            write!(f, " --hours {}", chaos.as_secs_f64() / 3_600.0)?;
        }
        match faults {
            Some(faults) => write!(f, " --faults {faults}"),
            None => Ok(()),
        }
    }
}

/// A seed that nobody has chosen.
pub(crate) fn fresh() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // The standard library's hash keys are drawn by the system; small numbers are easier to type.
    std::hash::RandomState::new().build_hasher().finish() % 1_000_000_000
}

/// One run; a panic is a broken rule too.
pub(crate) fn attempt(
    seed: u64,
    wishes: &Wishes,
    sabotage: Option<Sabotage>,
) -> Result<(u64, Duration), Violation> {
    let options = Options::draw(seed, wishes);
    let world = catch_unwind(AssertUnwindSafe(|| super::run(options, false, sabotage)));
    match world {
        Ok(world) => match world.violation() {
            None => Ok((world.events(), world.elapsed())),
            Some(violation) => Err(violation.clone()),
        },
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let what = text.unwrap_or_else(|| "with something that is no text".to_owned());
            Err(Violation { rule: "nothing_panics", what })
        }
    }
}

/// Runs the seeds from `from` on.
///
/// # Errors
/// The first that breaks a rule, made small.
pub fn sweep(from: u64, seeds: u64, wishes: &Wishes) -> Result<Done, Box<Failure>> {
    let next = AtomicU64::new(0);
    let (events, nanos) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let found: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let bar = indicatif::ProgressBar::new(seeds);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds {
                        return;
                    }
                    let seed = from.wrapping_add(number);
                    match attempt(seed, wishes, None) {
                        Ok((count, time)) => {
                            events.fetch_add(count, Ordering::Relaxed);
                            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                            nanos.fetch_add(time, Ordering::Relaxed);
                            bar.inc(1);
                        }
                        Err(violation) => {
                            stop.store(true, Ordering::Relaxed);
                            // A lock that a panic has poisoned holds what it held.
                            let mut found =
                                found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            let first = found.as_ref().is_none_or(|(other, _)| seed < *other);
                            if first {
                                *found = Some((seed, violation));
                            }
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    match found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        None => Ok(Done {
            seeds,
            events: events.into_inner(),
            time: Duration::from_nanos(nanos.into_inner()),
        }),
        Some((seed, violation)) => Err(Box::new(shrink(seed, wishes.clone(), violation))),
    }
}

/// Fewer faults, fewer jobs, fewer machines, less time: as long as some rule is still broken.
fn shrink(seed: u64, mut wishes: Wishes, mut violation: Violation) -> Failure {
    let mut tries = 0;
    loop {
        let now = Options::draw(seed, &wishes);
        let smaller = candidates(&now, &wishes);
        let better = smaller.into_iter().find_map(|wishes| {
            tries += 1;
            if tries > TRIES_MAX {
                return None;
            }
            attempt(seed, &wishes, None).err().map(|violation| (wishes, violation))
        });
        match better {
            Some((smaller, broken)) => (wishes, violation) = (smaller, broken),
            None => return Failure { seed, wishes, violation },
        }
    }
}

fn candidates(now: &Options, wishes: &Wishes) -> Vec<Wishes> {
    let mut all = Vec::new();
    let nodes = now.gpus.len();
    if nodes > 2 {
        all.push(Wishes { nodes: Some(nodes - 1), ..wishes.clone() });
    }
    if now.jobs > 1 {
        all.push(Wishes { jobs: Some(now.jobs / 2), ..wishes.clone() });
        all.push(Wishes { jobs: Some(now.jobs - 1), ..wishes.clone() });
    }
    if now.chaos > Duration::from_secs(4) {
        all.push(Wishes { chaos: Some(now.chaos / 2), ..wishes.clone() });
    }
    for fault in Fault::ALL.into_iter().filter(|fault| now.faults.has(*fault)) {
        let mut fewer = now.faults.0.clone();
        fewer.remove(&fault);
        all.push(Wishes { faults: Some(Faults(fewer)), ..wishes.clone() });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_prints_the_command_that_repeats_it() {
        let failure = Failure {
            seed: 7,
            wishes: Wishes { nodes: Some(3), faults: "kill".parse().ok(), ..Wishes::default() },
            violation: Violation { rule: "r", what: "w".into() },
        };
        let command = "BROKEN r: w\nreplay: testnet sim --seed 7 --nodes 3 --faults kill";
        assert_eq!(failure.to_string(), command);
    }
}

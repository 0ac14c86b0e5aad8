//! The simulator: the very core of the daemon, in virtual time, on one thread, with every fault
//! there is, all of it drawn from one seed.
//!
//! A run founds a mesh, lets users work and faults strike, then ends the faults and waits until all
//! is well. [`invariants`] says what must hold at every moment, [`liveness`] what must come about.

pub(crate) mod agenda;
pub(crate) mod command;
pub(crate) mod disk;
pub mod invariants;
pub(crate) mod liveness;
pub(crate) mod machine;
pub(crate) mod network;
pub mod options;
pub mod sabotage;
pub mod scenarios;
pub(crate) mod streams;
pub mod sweep;
pub mod trace;
pub mod world;

use self::invariants::{Fact, Violation};
use self::options::{Options, Wishes};
use self::sabotage::Sabotage;
use self::world::World;

/// A whole run: faults, then peace.
pub fn run(options: Options, keep_trace: bool, sabotage: Option<Sabotage>) -> World {
    let mut world = World::new(options, keep_trace);
    world.found();
    world.sabotage = sabotage;
    if sabotage == Some(Sabotage::NoRoom) {
        world.checks.see(&Fact::NoRoom);
    }
    world.plan_work();
    world.begin_chaos();
    let chaos = world.options.chaos;
    world.run(chaos);
    if world.violation().is_none() {
        world.settle();
    }
    world
}

/// The run of a seed, and what rule it breaks, if it does.
pub fn seed(seed: u64, wishes: &Wishes) -> Option<Violation> {
    run(Options::draw(seed, wishes), false, None).violation().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        for seed in 0..3 {
            let one = run(Options::draw(seed, &Wishes::default()), true, None);
            let two = run(Options::draw(seed, &Wishes::default()), true, None);
            assert_eq!(one.trace().lines(), two.trace().lines());
            assert!(one.trace().count() > 100);
        }
    }

    #[test]
    fn a_few_seeds_break_no_rule() {
        for number in 0..20 {
            assert_eq!(seed(number, &Wishes::default()), None, "seed {number}");
        }
    }
}

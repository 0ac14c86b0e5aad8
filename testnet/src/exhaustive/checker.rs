//! Visits every state that a model can reach, the nearest first, and stops at the first that breaks
//! a rule: the path to it is then a shortest one.
//!
//! A driver of our own and not the crate `stateright`, because
//! - that one brings a web server (`tiny_http`), not to be left out, and eleven more direct
//!   dependencies for a loop of fifty lines;
//! - it tells states apart by 64-bit fingerprints, this one by the states themselves;
//! - its network and actors are models of their own, to which the machines of the core would have
//!   to be bent; here a model calls the very `handle` that the daemon calls, and remembers what
//!   came of it, so that millions of states cost a few thousand calls.
//!
//! There is one thread: the states of a model share what its machines have answered.

use std::fmt;
use std::hash::Hash;

use indexmap::IndexSet;

use super::pool::FastBuild;
use crate::sim::invariants::Violation;

/// States of one model that are kept; more is an error, not an answer.
pub const STATES_MAX: usize = 60_000_000;

/// How often a search tells how far it is, in visited states.
const TOLD_EVERY: usize = 1 << 14;

/// Something that has states and can do things.
pub trait Model {
    /// All that decides what can happen next.
    type State: Copy + Eq + Hash;
    /// What can happen.
    type Action: Copy;

    /// Where it begins.
    fn start(&mut self) -> Self::State;

    /// All that can happen in a state, always in the same order.
    fn actions(&mut self, state: &Self::State, out: &mut Vec<Self::Action>);

    /// What becomes of a state, and the sights on the way.
    ///
    /// # Errors
    /// The rule that is broken on the way.
    fn step(&mut self, state: &Self::State, action: Self::Action) -> Step<Self::State>;

    /// What is seen in a state.
    ///
    /// # Errors
    /// The rule that the state breaks.
    fn look(&mut self, state: &Self::State) -> Result<Sights, Violation>;

    /// What it must be able to do and was not seen to.
    fn missing(&self, seen: Sights) -> Vec<&'static str>;

    /// An action, for people.
    fn tell(&self, state: &Self::State, action: Self::Action) -> String;
}

/// What becomes of a state.
pub type Step<S> = Result<(S, Sights), Violation>;

/// What has been seen: a bit for each thing that a model must be able to do, so that one in which
/// nothing ever happens does not pass for a safe one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sights(pub u32);

impl Sights {
    /// Sees one more thing.
    pub fn see(&mut self, bit: u32) {
        self.0 |= 1 << bit;
    }

    /// Sees what others have seen.
    pub fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }
}

/// How a search went.
#[derive(Clone, Debug)]
pub struct Found {
    /// States explored: every result of every action in every state.
    pub explored: u64,
    /// Those of them that differ.
    pub unique: u64,
    /// Actions to the farthest of them.
    pub depth: u32,
    /// All that was seen.
    pub sights: Sights,
    /// What stopped the search, if something did.
    pub broken: Option<Broken>,
}

/// A rule that is broken, and how to get there.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What is broken.
    pub violation: Violation,
    /// A shortest path to it.
    pub path: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in (1..).zip(&self.path) {
            writeln!(f, "{number:>4}  {line}")?;
        }
        write!(f, "BROKEN {}: {}", self.violation.rule, self.violation.what)
    }
}

/// What a search keeps.
struct Search<S> {
    /// In the order in which they were found: those behind the one that is visited wait.
    states: IndexSet<S, FastBuild>,
    /// From which state, by which of its actions, each was found.
    found: Vec<(u32, u16)>,
}

/// Visits all states. `told` hears now and then how many are known and how many were visited.
pub fn search<M: Model>(model: &mut M, told: &mut dyn FnMut(usize, usize)) -> Found {
    let mut search = Search { states: IndexSet::default(), found: Vec::new() };
    let mut done =
        Found { explored: 1, unique: 1, depth: 0, sights: Sights::default(), broken: None };
    search.states.insert(model.start());
    search.found.push((0, 0));
    let mut level_ends = 1;
    let mut actions = Vec::new();
    let mut at = 0;
    while at < search.states.len() {
        if at == level_ends {
            done.depth += 1;
            level_ends = search.states.len();
        }
        if at % TOLD_EVERY == 0 {
            told(search.states.len(), at);
        }
        let state = search.states[at];
        match model.look(&state) {
            Ok(sights) => done.sights.add(sights),
            Err(violation) => {
                let path = search.path(model, at, None);
                done.broken = Some(Broken { violation, path });
                break;
            }
        }
        actions.clear();
        model.actions(&state, &mut actions);
        for (number, action) in actions.iter().enumerate() {
            done.explored += 1;
            match model.step(&state, *action) {
                Ok((next, sights)) => {
                    done.sights.add(sights);
                    if search.states.insert(next) {
                        search.found.push((narrow(at), number as u16));
                    }
                }
                Err(violation) => {
                    let path = search.path(model, at, Some(*action));
                    done.broken = Some(Broken { violation, path });
                    break;
                }
            }
        }
        if done.broken.is_none() && search.states.len() > STATES_MAX {
            let what = format!("more than {STATES_MAX} states: the limits are too wide");
            let violation = Violation { rule: "finishes", what };
            done.broken = Some(Broken { violation, path: Vec::new() });
        }
        if done.broken.is_some() {
            break;
        }
        at += 1;
    }
    done.unique = search.states.len() as u64;
    done
}

impl<S: Copy + Eq + Hash> Search<S> {
    /// The actions that lead to a state, and one more.
    fn path<M: Model<State = S>>(
        &self,
        model: &mut M,
        mut at: usize,
        last: Option<M::Action>,
    ) -> Vec<String> {
        let mut path: Vec<String> =
            last.iter().map(|action| model.tell(&self.states[at], *action)).collect();
        let mut actions = Vec::new();
        while at > 0 {
            let (before, number) = self.found[at];
            at = before as usize;
            actions.clear();
            model.actions(&self.states[at], &mut actions);
            path.push(model.tell(&self.states[at], actions[usize::from(number)]));
        }
        path.reverse();
        path
    }
}

/// [`STATES_MAX`] is less than what fits.
fn narrow(at: usize) -> u32 {
    at as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters; the sum of both may never be 5 if `limit` is lower.
    struct Counters {
        limit: u8,
        forbidden: Option<u8>,
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Action = bool;

        fn start(&mut self) -> (u8, u8) {
            (0, 0)
        }

        fn actions(&mut self, state: &(u8, u8), out: &mut Vec<bool>) {
            out.extend((state.0 < self.limit).then_some(true));
            out.extend((state.1 < self.limit).then_some(false));
        }

        fn step(&mut self, state: &(u8, u8), first: bool) -> Step<(u8, u8)> {
            let (a, b) = *state;
            Ok((if first { (a + 1, b) } else { (a, b + 1) }, Sights(1 << a)))
        }

        fn look(&mut self, state: &(u8, u8)) -> Result<Sights, Violation> {
            if self.forbidden == Some(state.0 + state.1) {
                return Err(Violation { rule: "sum", what: format!("{state:?}") });
            }
            Ok(Sights::default())
        }

        fn missing(&self, _: Sights) -> Vec<&'static str> {
            Vec::new()
        }

        fn tell(&self, _: &(u8, u8), first: bool) -> String {
            if first { "first".into() } else { "second".into() }
        }
    }

    #[test]
    fn every_state_is_visited_once_and_the_farthest_is_known() {
        let found = search(&mut Counters { limit: 3, forbidden: None }, &mut |_, _| {});
        assert!(found.broken.is_none());
        assert_eq!((found.unique, found.explored, found.depth), (16, 25, 6));
        assert_eq!(found.sights, Sights(0b1111));
    }

    #[test]
    fn the_path_to_a_broken_rule_is_a_shortest_one() {
        let found = search(&mut Counters { limit: 3, forbidden: Some(5) }, &mut |_, _| {});
        let broken = found.broken.unwrap();
        assert_eq!((broken.violation.rule, broken.path.len()), ("sum", 5));
        let shown = broken.to_string();
        assert!(shown.ends_with("BROKEN sum: (3, 2)"), "{shown}");
    }
}

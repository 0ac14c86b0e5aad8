//! The exhaustive checker: every state that the real machines of the core can reach, within small
//! limits, over a network that loses, doubles and reorders, with crashes. The simulator goes far
//! along a few paths; this goes a little way along all of them.
//!
//! Each model is complete within its limits, which are printed: no state is left out, no path cut
//! short. Its rules hold in every state, or a shortest path to the one that breaks them is shown.

pub mod checker;
pub(crate) mod command;
pub mod electing;
pub mod leasing;
pub mod models;
pub mod pool;

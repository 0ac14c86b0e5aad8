//! gpuvine on one machine.
//!
//! With the default feature `live`: real daemons as processes (the demo, a mesh to play with, the
//! benchmarks, and what the whole-program tests stand on). Without it this crate is built on the
//! pure core alone, which is how the rule that the core reaches nowhere upward is compiled and not
//! only promised.

pub mod command;
pub mod exhaustive;
mod rank;
pub mod scale;
pub mod sim;
pub mod stopwatch;

#[cfg(feature = "live")]
pub mod live;

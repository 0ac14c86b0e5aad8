//! Real daemons on one machine: the demo, a mesh to play with, and the benchmarks.

pub mod bench;
pub mod command;
pub mod demo;
pub mod disk;
pub mod figures;
pub mod lan;
pub mod leftovers;
pub mod load;
pub mod mesh;
pub mod talk;
pub mod task;
pub mod up;
pub mod witness;

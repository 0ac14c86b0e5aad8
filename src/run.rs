//! Runs tasks: a keeper process stands over each.
//!
//! A keeper is this very program, forked from one that was started again with [`KEEPER`] as its
//! first argument. It outlives the daemon, knows all descendants of its task, writes their output
//! to capped files, and tells whoever connects what has happened. The daemon's side of it is
//! [`Tasks`].

pub mod environment;
mod folder;
mod folders;
mod keeper;
mod keepers;
mod output;
mod processes;
mod protocol;
mod task;
mod tasks;

pub use self::folder::FolderError;
pub use self::keeper::keeper_main;
pub use self::output::{Chunk, OutputReader, Which};
pub use self::protocol::Totals;
pub use self::task::{Event, StartError, Task, TaskControl};
pub use self::tasks::{Fate, Recovered, StartSpec, Tasks};

/// The first argument with which this program starts itself as the server of keepers.
pub const KEEPER: &str = "__keeper";

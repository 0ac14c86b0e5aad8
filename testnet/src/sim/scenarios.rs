//! Pinned stories.

use super::world::World;

/// One story.
#[derive(Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// Plays it.
    pub play: fn() -> World,
}

/// All of them.
pub const ALL: &[Scenario] = &[];

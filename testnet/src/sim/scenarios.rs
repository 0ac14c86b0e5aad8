//! Pinned stories: what went wrong in systems like this one, and what the simulator found in ours,
//! each told once more, step by step, with the right end.

mod field;
mod found;
mod story;

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
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    field::ALL.iter().chain(found::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_story_has_a_good_end_and_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for story in all() {
            assert!(names.insert(story.name), "{} is told twice", story.name);
            assert_eq!((story.play)().violation(), None, "{}", story.name);
        }
    }
}

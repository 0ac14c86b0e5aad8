//! A directory only moves forward: in one start of a daemon no report is replaced by an older one.

use std::collections::BTreeMap;

use gpuvine::core::id::{Incarnation, NodeId, Version};

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    ages: BTreeMap<usize, Known>,
}

#[derive(Debug, Default)]
struct Known {
    life: u32,
    ages: BTreeMap<NodeId, (Incarnation, Version)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "directory_only_newer"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Turn { machine, life, node } = fact else { return Ok(()) };
        let known = self.ages.entry(*machine).or_default();
        if known.life != *life {
            *known = Known { life: *life, ages: BTreeMap::new() };
        }
        if node.directory().len() < known.ages.len() {
            return Err(format!("n{machine} has forgotten a node"));
        }
        for (id, entry) in node.directory().iter() {
            let age = entry.report().age();
            let before = known.ages.insert(id, age);
            if before.is_some_and(|before| before > age) {
                return Err(format!("n{machine} has {id:?} at {age:?} after {before:?}"));
            }
        }
        Ok(())
    }
}

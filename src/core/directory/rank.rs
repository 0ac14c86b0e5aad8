//! Keeps who is best placed to reign: operator's priority, then longest in the mesh, then id.
//!
//! A mesh asks for the controller and its standbys, so only the first few are kept in order, and
//! whoever is not among them costs nothing to learn of.

use std::cmp::Reverse;

use crate::core::id::NodeId;
use crate::core::report::{NO_PLACE, NodeState, Report};

/// How many are kept in order: more than there ever are standbys.
pub const RANKED_MAX: usize = 16;

/// Where a node stands; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    priority: Reverse<i32>,
    seniority: u64,
    node: NodeId,
}

impl Standing {
    /// Of a living node, from what it says of itself: one that leaves has none, nor has one that
    /// has no place in the order of arrival yet.
    pub fn of(report: &Report) -> Option<Self> {
        let reigns = report.state != NodeState::Leaving && report.seniority != NO_PLACE;
        reigns.then_some(Self {
            priority: Reverse(report.priority),
            seniority: report.seniority,
            node: report.node,
        })
    }
}

/// The first of all standings. Always true: the best [`RANKED_MAX`] of all that there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranked {
    first: Vec<Standing>,
    /// How many there are.
    count: usize,
}

impl Ranked {
    pub(super) fn first(&self) -> impl Iterator<Item = NodeId> {
        self.first.iter().map(|standing| standing.node)
    }

    /// One standing became another; `all` are those of now, if they have to be looked through.
    pub(super) fn replace(
        &mut self,
        before: Option<Standing>,
        after: Option<Standing>,
        all: impl Iterator<Item = Standing>,
    ) {
        self.count -= usize::from(before.is_some());
        if let Some(at) = before.and_then(|before| self.first.binary_search(&before).ok()) {
            self.first.remove(at);
        }
        let known = self.first.len();
        let complete = known == self.count;
        self.count += usize::from(after.is_some());
        if let Some(after) = after {
            let at = self.first.partition_point(|standing| *standing < after);
            if at < known || complete {
                self.first.insert(at, after);
                self.first.truncate(RANKED_MAX);
            }
        }
        if self.first.len() < self.count.min(RANKED_MAX) {
            self.search(all);
        }
    }

    fn search(&mut self, all: impl Iterator<Item = Standing>) {
        self.first.clear();
        for standing in all {
            let at = self.first.partition_point(|before| *before < standing);
            if at < RANKED_MAX {
                self.first.insert(at, standing);
                self.first.truncate(RANKED_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_first_are_the_first_of_all(
            steps in proptest::collection::vec((0u8..40, 0i32..3, any::<bool>()), 0..200),
        ) {
            let (mut ranked, mut all) = (Ranked::default(), BTreeMap::new());
            for (node, priority, there) in steps {
                let node = NodeId([node; 32]);
                let standing = Standing { priority: Reverse(priority), seniority: 1, node };
                let before = all.remove(&node);
                let after = there.then_some(standing);
                all.extend(after.map(|after| (node, after)));
                ranked.replace(before, after, all.values().copied());
                let mut expected: Vec<Standing> = all.values().copied().collect();
                expected.sort_unstable();
                expected.truncate(RANKED_MAX);
                prop_assert_eq!(&ranked.first, &expected);
            }
        }
    }
}

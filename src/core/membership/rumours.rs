//! What is still to be told of members: the newest of each, so many times and no more.

use std::collections::BTreeMap;

use super::datagram::{RUMOURS_MAX, Rumour};
use crate::core::id::NodeId;

/// Rumours that are still told.
#[derive(Debug, Default)]
pub(super) struct Rumours {
    /// Each with how often it will be told.
    told: BTreeMap<NodeId, (Rumour, u32)>,
}

impl Rumours {
    /// News: it replaces what was told of the member before.
    pub(super) fn add(&mut self, rumour: Rumour, times: u32) {
        self.told.insert(rumour.node, (rumour, times));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Rumours for one datagram: those that were told the least.
    pub(super) fn pick(&mut self) -> Vec<Rumour> {
        let mut order: Vec<(u32, NodeId)> =
            self.told.iter().map(|(node, (_, left))| (*left, *node)).collect();
        order.sort_unstable_by_key(|(left, _)| std::cmp::Reverse(*left));
        let mut picked = Vec::new();
        for (_, node) in order.into_iter().take(RUMOURS_MAX) {
            let Some((rumour, left)) = self.told.get_mut(&node) else { continue };
            picked.push(*rumour);
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.told.remove(&node);
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::membership::State;

    #[test]
    fn each_is_told_so_many_times_and_the_newest_first() {
        let rumour =
            |number, life| Rumour { node: NodeId([number; 32]), life, state: State::Alive };
        let mut rumours = Rumours::default();
        (0..30).for_each(|number| rumours.add(rumour(number, 1), 2));
        assert_eq!(rumours.pick().len(), RUMOURS_MAX);
        rumours.add(rumour(0, 2), 2);
        assert!(rumours.pick().contains(&rumour(0, 2)));
        let mut told = 0;
        while !rumours.is_empty() {
            told += rumours.pick().len();
        }
        assert_eq!(told, 30 * 2 + 1 - 2 * RUMOURS_MAX);
    }
}

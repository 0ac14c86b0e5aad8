//! What is waited for, and when each machine came to know it.

use gpuvine::core::id::{Incarnation, NodeId, Reign, Version};
use gpuvine::core::node::Node;
use gpuvine::core::time::{Duration, Instant};

/// What a machine is to know.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A report of a node, or a newer one.
    Report(NodeId, (Incarnation, Version)),
    /// That a node is alive, in this start or a later one.
    Alive(NodeId, Incarnation),
    /// That a node is dead.
    Dead(NodeId),
    /// A higher reign than this.
    Reign(Option<Reign>),
}

/// Something that all machines but some are to know.
#[derive(Debug)]
pub(super) struct Watch {
    what: What,
    since: Instant,
    /// How long each took; `None` for those that do not know it.
    known: Vec<Option<Duration>>,
    missing: usize,
}

impl Watch {
    /// From now on it is looked who knows this.
    pub(super) fn new(what: What, since: Instant, who: &[bool]) -> Self {
        let known = who.iter().map(|counts| (!counts).then_some(Duration::MAX)).collect();
        Self { what, since, known, missing: who.iter().filter(|counts| **counts).count() }
    }

    /// Whether all know it.
    pub(super) fn is_over(&self) -> bool {
        self.missing == 0
    }

    /// How many do not.
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// A machine has had its turn.
    pub(super) fn look(&mut self, machine: usize, node: &Node, now: Instant) {
        let Some(known) = self.known.get_mut(machine).filter(|known| known.is_none()) else {
            return;
        };
        let entry = |node_id| node.directory().get(node_id);
        let knows = match self.what {
            What::Report(of, age) => entry(of).is_some_and(|entry| entry.report().age() >= age),
            What::Alive(of, start) => entry(of)
                .is_some_and(|entry| entry.is_alive() && entry.report().incarnation >= start),
            What::Dead(of) => entry(of).is_none_or(|entry| !entry.is_alive()),
            What::Reign(before) => node.election().reign() > before,
        };
        if knows {
            *known = Some(now.since(self.since));
            self.missing -= 1;
        }
    }

    /// How long a machine took.
    pub(super) fn of(&self, machine: usize) -> Option<Duration> {
        self.known.get(machine).copied().flatten().filter(|took| *took != Duration::MAX)
    }

    /// How long each took that was watched and came to know it.
    pub(super) fn took(&self) -> impl Iterator<Item = Duration> + '_ {
        self.known.iter().flatten().copied().filter(|took| *took != Duration::MAX)
    }
}

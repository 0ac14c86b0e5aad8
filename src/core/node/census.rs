//! A mesh that knows itself, for those who want to begin with one.
//!
//! Ten thousand joins, one after the other, say nothing of the mesh that they end in. The simulator
//! counts it once instead, and every node takes that over; what they then know is shared between
//! them until it changes.

use super::{Node, Turn};
use crate::core::directory::Directory;
use crate::core::membership::Member;
use crate::core::neighbours;
use crate::core::outbox::Outbox;
use crate::core::roll::Roll;
use crate::core::time::{Instant, WallTime};

/// All members and their reports.
#[derive(Clone, Debug, Default)]
pub struct Census {
    directory: Directory,
    members: Roll<Member>,
}

impl Census {
    /// The census of these nodes, all of them alive.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>, now: Instant) -> Self {
        let mut census = Self::default();
        for node in nodes {
            census.directory.insert(node.reporting.signed().clone(), now);
            census.directory.mark(node.me, true, now);
            census.members.insert(Member::alive(node.me, node.incarnation));
        }
        census
    }
}

impl Node {
    /// Knows from now on all that a census shows, as if it had met everybody and pulled their
    /// directories.
    pub fn adopt(
        &mut self,
        census: &Census,
        now: Instant,
        at: WallTime,
        out: &mut Outbox<super::Effect>,
    ) {
        self.directory = census.directory.clone();
        self.directory.insert(self.reporting.signed().clone(), now);
        self.directory.mark(self.me, true, now);
        self.membership.adopt(census.members.clone(), now);
        self.repair.adopt();
        let mut turn = Turn { now, at, out, presenting: false };
        self.tell_neighbours(neighbours::Input::Deadline, &mut turn);
        self.rank(now, at, out);
    }
}

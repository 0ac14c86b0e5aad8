//! What foca wants of its surroundings: an identity, settings, and where its wishes go.

use std::num::{NonZeroU32, NonZeroUsize};

use foca::{Config, Notification, PeriodicParams, Runtime, Timer};
use serde::{Deserialize, Serialize};

use super::Effect;
use crate::core::id::NodeId;
use crate::core::time::Duration;

/// A member in one of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) node: NodeId,
    /// Grows with every start of the daemon, and when a living member was declared dead.
    pub(super) generation: u64,
}

/// After so many renewals a node waits a while, and then comes back as another start.
const RENEWALS_AT_ONCE: u64 = 8;

impl foca::Identity for Identity {
    type Addr = NodeId;

    /// At once, but not without end: others may know a generation that is thousands higher, from a
    /// start that this node's disk does not remember, and would refuse each of them.
    fn renew(&self) -> Option<Self> {
        let pauses = self.generation % RENEWALS_AT_ONCE == RENEWALS_AT_ONCE - 1;
        let next = Self { node: self.node, generation: self.generation.saturating_add(1) };
        (!pauses).then_some(next)
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        self.generation > other.generation
    }
}

/// Settings for a mesh of so many members: foca's for a local network, but for what repair does
/// here anyway.
pub(super) fn config(members: usize) -> Config {
    let members = u32::try_from(members.max(2)).unwrap_or(u32::MAX);
    let mut config = Config::new_lan(NonZeroU32::new(members).unwrap_or(NonZeroU32::MIN));
    config.suspect_to_down_after = config.suspect_to_down_after.max(Duration::from_secs(3));
    // Who was declared dead is asked again, so that two halves find each other after a split.
    config.periodic_announce_to_down_members =
        Some(PeriodicParams { frequency: Duration::from_secs(30), num_members: NonZeroUsize::MIN });
    // Rumours need no more haste than a probe a second has.
    config.periodic_gossip = Some(PeriodicParams {
        frequency: Duration::from_millis(500),
        num_members: NonZeroUsize::MIN.saturating_add(2),
    });
    config
}

/// Collects what one call of foca wants done.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) effects: Vec<Effect>,
    pub(super) timers: Vec<(Timer<Identity>, Duration)>,
    /// The others have declared this node dead, and it has not renewed itself.
    pub(super) defunct: bool,
}

impl Runtime<Identity> for Buffer {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        match notification {
            Notification::MemberUp(member) => self.effects.push(Effect::Up(member.node)),
            Notification::MemberDown(member) => self.effects.push(Effect::Down(member.node)),
            // Another start of a member: up again, whether it was thought up or down.
            Notification::Rename(_, member) => self.effects.push(Effect::Up(member.node)),
            Notification::Defunct => self.defunct = true,
            _ => {}
        }
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        self.effects.push(Effect::Send(to.node, data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Identity>, after: Duration) {
        self.timers.push((event, after));
    }
}

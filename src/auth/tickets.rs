//! Remembers which machine has used which ticket, as far as this member has seen.
//!
//! A ticket is bound offline, so nobody is asked when that is done, and two machines can each bind
//! a copy of one. What can be known is who showed it first. So every member keeps who has come with
//! which ticket, and refuses another machine that comes with the same one: the first wins.
//!
//! Two members that cannot reach each other may each let another one in. What decides then is what
//! the machines carry themselves: the endorsement that each got says when it was seen first. The
//! earlier one stays, also where only the later one was known, so that all members come to the same
//! answer; and a member that has lost its memory learns from the next one that comes.
//!
//! Always true: no ticket has more users than it is for; there are at most [`USES_MAX`] in all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::credential::{AuthError, Shown};
use crate::core::id::NodeId;
use crate::core::time::WallTime;

/// Machines that one ticket may be for.
pub const TICKET_USES_MAX: u32 = 1_000;

/// Uses of tickets that are remembered: as many as a mesh has nodes. Of more, those of the ticket
/// that expires first, or expired longest ago, are forgotten.
const USES_MAX: usize = 16_384;

/// Names a ticket: the hash of what the mesh's key signed, which no binding changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TicketId(#[serde(with = "serde_bytes")] pub [u8; 32]);

/// A machine that has come with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Who.
    pub node: NodeId,
    /// Whether a member that may admit has signed when it saw the ticket.
    pub endorsed: bool,
    /// That time; else when it was seen here.
    pub at: WallTime,
}

impl Use {
    /// Who comes first. What was signed counts before what was only seen.
    fn rank(&self) -> (bool, WallTime, NodeId) {
        (!self.endorsed, self.at, self.node)
    }
}

/// Who has used one ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// When the ticket expires.
    pub expires: WallTime,
    /// The machines, the first to come first.
    pub by: Vec<Use>,
}

/// What has become of a ticket, to be kept; nothing if it is forgotten.
pub type TicketChange = (TicketId, Option<Used>);

/// All that this member has seen of tickets.
#[derive(Clone, Debug, Default)]
pub struct Tickets {
    used: BTreeMap<TicketId, Used>,
    uses: usize,
    evicted: u64,
    changes: Vec<TicketChange>,
}

impl Tickets {
    /// What was remembered before.
    pub fn new(used: impl IntoIterator<Item = (TicketId, Used)>) -> Self {
        let used: BTreeMap<TicketId, Used> = used.into_iter().collect();
        let uses = used.values().map(|used| used.by.len()).sum();
        let mut tickets = Self { used, uses, ..Self::default() };
        tickets.make_room(None);
        tickets
    }

    /// What has changed since this was asked last.
    pub(super) fn take_changes(&mut self) -> Vec<TicketChange> {
        std::mem::take(&mut self.changes)
    }

    /// How many machines have been found not to be the first, that had been let in.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// A machine has come with a ticket.
    pub(super) fn admit(
        &mut self,
        node: NodeId,
        shown: &Shown,
        now: WallTime,
    ) -> Result<(), AuthError> {
        let new =
            Use { node, endorsed: shown.endorsed.is_some(), at: shown.endorsed.unwrap_or(now) };
        let limit = shown.limit as usize;
        let before = self.used.get(&shown.ticket);
        let mut by = before.map_or_else(Vec::new, |used| used.by.clone());
        match by.iter().position(|known| known.node == node) {
            Some(at) if by[at].rank() <= new.rank() => return Ok(()),
            Some(at) => by[at] = new,
            // A clock that was set back makes nobody the first who has nothing to show for it.
            None if !new.endorsed && by.len() >= limit => return Err(refusal(&by, shown)),
            None => by.push(new),
        }
        by.sort_by_key(Use::rank);
        let late = by.split_off(limit.min(by.len()));
        if late.iter().any(|known| known.node == node) {
            return Err(refusal(&by, shown));
        }
        self.evicted += late.len() as u64;
        self.uses -= before.map_or(0, |used| used.by.len());
        self.uses += by.len();
        let used = Used { expires: shown.expires, by };
        self.changes.push((shown.ticket, Some(used.clone())));
        self.used.insert(shown.ticket, used);
        self.make_room(Some(shown.ticket));
        Ok(())
    }

    /// Forgets tickets until there is room, but not this one.
    fn make_room(&mut self, but: Option<TicketId>) {
        while self.uses > USES_MAX {
            let others = self.used.iter().filter(|(ticket, _)| Some(**ticket) != but);
            let Some(oldest) = others.min_by_key(|(_, used)| used.expires).map(|(id, _)| *id)
            else {
                return;
            };
            if let Some(gone) = self.used.remove(&oldest) {
                self.uses -= gone.by.len();
                self.changes.push((oldest, None));
            }
        }
    }
}

/// The sentence for one who comes too late.
fn refusal(by: &[Use], shown: &Shown) -> AuthError {
    match by.first() {
        Some(first) if shown.limit <= 1 => AuthError::TicketUsed { by: first.node },
        _ => AuthError::TicketUsedUp { limit: shown.limit },
    }
}

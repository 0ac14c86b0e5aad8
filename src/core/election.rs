//! Decides who is controller.
//!
//! Every node can see who is alive, so no votes are counted. The best-placed living node
//! (operator's priority, then longest in the mesh, then id) claims the next term when there is no
//! living controller, after a delay that grows with its rank; everyone follows the highest reign,
//! (term, id), that they have heard of. Two halves of a split mesh each have a controller; on
//! healing the higher claim wins. That is enough, for a term is not the fence: each node's ledger
//! is.
//!
//! The first few in rank are standbys. Each holds a link to the controller and pings it a few times
//! a second, so failover does not wait for SWIM. One standby with a bad link deposes nobody: a
//! controller is given up when most living standbys cannot reach it, when SWIM calls it dead, or
//! when it leaves. A better placed newcomer deposes nobody either. A node that has just started
//! listens first. The highest term is on disk before it is claimed.
//!
//! In: who could reign, by rank; links; messages. Out: claims, pings, suspicions.
//! Always true: the reign that is followed only grows; a claim's term was stored before it was
//! made.

mod machine;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::machine::{Config, Effect, Election, Input};
use super::id::{NodeId, Reign, Term};
use super::signed::{Signable, Signed};

/// "I reign from now on." Its signer is the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The reign's number.
    pub term: Term,
    /// Why, for people: what `status` shows.
    pub why: Why,
}

impl Signable for Claim {
    const CONTEXT: &'static [u8] = b"gpuvine/claim/1\0";
}

/// Why a node claimed to be controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Why {
    /// There was nobody else.
    Alone,
    /// It was the best placed of those alive, and no controller was known.
    NoController,
    /// The controller before it was declared dead by SWIM.
    Dead {
        /// The controller before.
        before: NodeId,
    },
    /// It was controller before it was restarted, and others still follow it.
    Restarted,
    /// Most standbys could not reach the controller before it.
    Unreachable {
        /// The controller before.
        before: NodeId,
        /// How many standbys said so.
        standbys: u32,
    },
    /// The controller before it left.
    Left {
        /// The controller before.
        before: NodeId,
    },
}

/// What travels between two elections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A claim, straight from the controller or passed on to one who did not know it.
    Claim(Signed<Claim>),
    /// Standby to controller: are you there? Carries the reign that the standby follows.
    Ping {
        /// Echoed in the answer.
        seq: u64,
        /// The reign that the sender follows.
        follows: Option<Reign>,
    },
    /// Controller to standby: yes.
    Pong {
        /// The ping's number.
        seq: u64,
        /// The reign that the sender follows.
        follows: Option<Reign>,
    },
    /// Standby to standby: I cannot reach this controller.
    Suspect {
        /// The reign in question.
        reign: Reign,
    },
}

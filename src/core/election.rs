//! Decides who is controller.
//!
//! See the module's owner for the text; design: every node can see who is alive, so no votes are
//! counted. The best-placed live node claims `term + 1` when there is no live controller.

use serde::{Deserialize, Serialize};

use super::id::{NodeId, Reign, Term};
use super::signed::{Signable, Signed};

/// "I reign from now on." Its signer is the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

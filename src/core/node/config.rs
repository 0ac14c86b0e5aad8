//! What a node is made of.

use crate::core::id::{Incarnation, NodeId, Term};
use crate::core::reporting::Facts;
use crate::core::rights::Rights;
use crate::core::signed::Key;
use crate::core::{controller, election, ledger};

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its secret key; the public half is its id.
    pub key: Key,
    /// The number of this start, already on disk.
    pub incarnation: Incarnation,
    /// The highest term on disk.
    pub term: Term,
    /// Its place in the order of arrival, if it is known: 0 for the founder.
    pub seniority: Option<u64>,
    /// What its membership allows.
    pub rights: Rights,
    /// What it says of itself.
    pub facts: Facts,
    /// Addresses to dial while there is no link.
    pub bootstrap: Vec<String>,
    /// Members of before this start, and their addresses: they are dialled now and then.
    pub remembered: Vec<(NodeId, Vec<String>)>,
    /// Seed of every generator in it.
    pub seed: [u8; 32],
    /// How its election behaves.
    pub election: election::Config,
    /// How it behaves as controller.
    pub controller: controller::Config,
    /// How its ledger behaves.
    pub ledger: ledger::Config,
}

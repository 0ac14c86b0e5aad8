//! Everything that travels on a link between two nodes, and what is gossiped.
//!
//! Each machine owns the meaning of its messages; this is only their sum. Their bytes and their
//! size limits are in `wire`.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::control::{self, Relayed};
use super::election::{self, Claim};
use super::repair;
use super::report::Report;
use super::signed::Signed;

/// One message on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Asks and grants.
    Control(control::Message),
    /// Claims, pings and suspicions.
    Election(election::Message),
    /// A control message on its way over a third member.
    Relay(Signed<Relayed>),
    /// Directories are being compared.
    Repair(repair::Message),
    /// A datagram of SWIM.
    Swim(ByteBuf),
}

/// What is pushed to every member by gossip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gossip {
    /// Somebody claims to be controller.
    Claim(Signed<Claim>),
    /// Somebody's report changed.
    Report(Signed<Report>),
}

//! What travels: the protocols, their versions, limits and bytes.
//!
//! | protocol | where | what |
//! | --- | --- | --- |
//! | [`ADMIT`] | first substream of every connection | who are you? Nothing else is served before |
//! | [`LINK`] | one substream each way, for as long as the link lasts | [`Message`]s |
//! | [`TASK`] | one substream for each task, or look at one | [`task`] frames |
//! | [`gossip_topic`] | gossipsub | [`Gossip`] |
//!
//! A new meaning gets a new version in the protocol's name; a peer that does not know it refuses it
//! by name while the connection is set up.
//!
//! [`Message`]: crate::core::message::Message
//! [`Gossip`]: crate::core::message::Gossip

pub mod codec;
pub mod limits;
pub mod task;

use crate::core::id::MeshId;

/// The admission protocol: its name is the first thing on the wire.
pub const ADMIT: &str = "/gpuvine/admit/1";

/// The protocol of links.
pub const LINK: &str = "/gpuvine/link/1";

/// The protocol of task streams.
pub const TASK: &str = "/gpuvine/task/1";

/// What identify tells of this program.
pub const IDENTIFY: &str = "/gpuvine/1";

/// The topic on which a mesh gossips.
pub fn gossip_topic(mesh: MeshId) -> String {
    format!("/gpuvine/{mesh}/1")
}

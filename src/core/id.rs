//! Names of things: nodes, meshes, jobs, attempts, and the numbers that only grow.
//!
//! A node's id is its ed25519 public key, shown as the libp2p peer id that the same key has
//! (<https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md>), so that what a user reads
//! in a multiaddress and in a table is the same word.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What precedes an ed25519 key in a peer id: an identity multihash of a protobuf public key.
const PEER_ID_PREFIX: [u8; 6] = [0x00, 0x24, 0x08, 0x01, 0x12, 0x20];

/// A node: the ed25519 public key of its identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(#[serde(with = "key_bytes")] pub [u8; 32]);

/// A mesh: the ed25519 public key of its founder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MeshId(#[serde(with = "key_bytes")] pub [u8; 32]);

/// Why a text is not an id. The text itself is in the variant, for the user who typed it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseIdError {
    /// Not a base58 peer id of an ed25519 key.
    #[error("`{0}` is not a node id (it should look like 12D3KooW...)")]
    Node(String),
    /// Not a base58 mesh id.
    #[error("`{0}` is not a mesh id")]
    Mesh(String),
    /// Not a job id.
    #[error("`{0}` is not a job id (it should be 12 letters and digits, as `gpuvine jobs` shows)")]
    Job(String),
}

impl NodeId {
    /// The bytes of the libp2p peer id of this key.
    pub fn to_peer_id_bytes(self) -> [u8; 38] {
        let mut bytes = [0; 38];
        bytes[..6].copy_from_slice(&PEER_ID_PREFIX);
        bytes[6..].copy_from_slice(&self.0);
        bytes
    }

    /// The node whose peer id has these bytes; `None` if the peer's key is not an ed25519 key.
    pub fn from_peer_id_bytes(bytes: &[u8]) -> Option<Self> {
        let key = bytes.strip_prefix(&PEER_ID_PREFIX)?;
        Some(Self(key.try_into().ok()?))
    }

    /// The id that follows on the ring of all ids at a distance of half the ring, halved so often.
    pub fn plus(self, halvings: u8) -> Self {
        let mut bytes = self.0;
        let mut carry = 0x80_u8 >> (halvings % 8);
        for byte in bytes[..=usize::from(halvings / 8)].iter_mut().rev() {
            let (sum, more) = byte.overflowing_add(carry);
            *byte = sum;
            carry = u8::from(more);
        }
        Self(bytes)
    }

    /// The last eight characters of the id: enough for people, and what logs and tables show.
    pub fn short(self) -> String {
        let text = self.to_string();
        text[text.len() - 8..].to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&bs58::encode(self.to_peer_id_bytes()).into_string())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl FromStr for NodeId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        bs58::decode(text)
            .into_vec()
            .ok()
            .and_then(|bytes| Self::from_peer_id_bytes(&bytes))
            .ok_or_else(|| ParseIdError::Node(text.to_owned()))
    }
}

impl fmt::Display for MeshId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&bs58::encode(self.0).into_string())
    }
}

impl fmt::Debug for MeshId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for MeshId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        bs58::decode(text)
            .into_vec()
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| ParseIdError::Mesh(text.to_owned()))
    }
}

/// Characters of a job id.
pub const JOB_ID_CHARS: usize = 12;

/// Crockford's base 32 in lower case: no i, l, o, u, so that an id can be read out aloud.
const JOB_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A job, unique in the mesh: 60 random bits, shown as 12 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(u64);

impl JobId {
    /// The job with these 60 bits; the upper four are dropped.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << 60) - 1))
    }

    /// The number behind the name.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = (0..JOB_ID_CHARS)
            .rev()
            .map(|digit| char::from(JOB_ALPHABET[(self.0 >> (5 * digit) & 31) as usize]))
            .collect();
        f.pad(&text)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for JobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let wrong = || ParseIdError::Job(text.to_owned());
        if text.len() != JOB_ID_CHARS {
            return Err(wrong());
        }
        let mut bits = 0;
        for byte in text.to_ascii_lowercase().bytes() {
            let digit = JOB_ALPHABET.iter().position(|known| *known == byte).ok_or_else(wrong)?;
            bits = bits << 5 | digit as u64;
        }
        Ok(Self(bits))
    }
}

/// Defines a number that only grows.
macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next number; saturates, for a liar may send the largest.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Number of one try to run a job, from 1. A job has at most one living attempt.
    Attempt
);
counter!(
    /// Number of a node's start: it grows at every start of its daemon and is kept on disk.
    Incarnation
);
counter!(
    /// How often one GPU was leased: the fence. A grant names the number that it was made for.
    LeaseSeq
);
counter!(
    /// Number of a controller's reign.
    Term
);
counter!(
    /// Version of a node's report within one incarnation.
    Version
);

/// A GPU's UUID as its driver tells it (`GPU-...`, `MIG-...`), or a simulated one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(pub String);

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A controller's reign: everyone follows the highest that they have heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reign {
    /// Number of the reign.
    pub term: Term,
    /// Who reigns. Two halves of a split mesh can mint one term; the id breaks the tie.
    pub controller: NodeId,
}

/// Keys travel as byte strings, not as arrays of numbers.
mod key_bytes {
    use serde::{Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(key: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(key)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let bytes: serde_bytes::ByteBuf = serde::Deserialize::deserialize(from)?;
        let len = bytes.len();
        bytes.into_vec().try_into().map_err(|_| Error::invalid_length(len, &"32 bytes of a key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_on_the_ring_carry_and_go_around() {
        let mut bytes = [0xff; 32];
        bytes[31] = 0;
        assert_eq!(NodeId(bytes).plus(0).0[..2], [0x7f, 0xff]);
        assert_eq!(NodeId(bytes).plus(15).0[..3], [0, 0, 0xff]);
        assert_eq!(NodeId(bytes).plus(255).0[30..], [0xff, 1]);
    }

    #[test]
    fn a_node_id_reads_as_a_peer_id_and_back() {
        let id = NodeId([7; 32]);
        assert!(id.to_string().starts_with("12D3KooW"), "{id}");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("12D3KooWnonsense".parse::<NodeId>().is_err());
    }

    #[test]
    fn a_job_id_reads_back_and_wrong_ones_are_named() {
        let id = JobId::from_bits(0x0123_4567_89ab_cdef);
        assert_eq!(id.to_string().len(), JOB_ID_CHARS);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("xyz".parse::<JobId>(), Err(ParseIdError::Job("xyz".into())));
        assert!("uuuuuuuuuuuu".parse::<JobId>().is_err());
    }
}

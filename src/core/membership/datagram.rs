//! What one membership says to another, and its bytes: a byte of kind, the sender's life, what the
//! kind needs, and rumours to the end. All numbers are big-endian.

use super::State;
use crate::core::id::NodeId;

/// Rumours in one datagram; a longer one is dropped.
pub(super) const RUMOURS_MAX: usize = 24;

/// Bytes of one rumour.
const RUMOUR_LEN: usize = 32 + 8 + 1;

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    /// The life of the sender.
    pub(super) life: u64,
    pub(super) kind: Kind,
    pub(super) rumours: Vec<Rumour>,
}

/// Why it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// I exist; who else does?
    Hello,
    /// Only the rumours.
    Rumours,
    /// Are you there?
    Ping(u32),
    /// Yes.
    Ack(u32),
    /// Is that one there? It does not answer me.
    AskFor(u32, NodeId),
    /// Are you there? That one wants to know.
    PingFor(u32, NodeId),
    /// Yes; tell that one.
    AckFor(u32, NodeId),
    /// That one is there.
    Vouch(u32, NodeId),
    /// I close our link on purpose.
    Parting,
    /// This is a digest of those who live, as far as I know.
    Living(u32),
    /// I know other ones to live. The rumours are of some whom I take for dead.
    Dead,
}

/// What is said of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rumour {
    pub(super) node: NodeId,
    pub(super) life: u64,
    pub(super) state: State,
}

impl Datagram {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 8 + 4 + 32 + self.rumours.len() * RUMOUR_LEN);
        let (code, seq, node) = match self.kind {
            Kind::Hello => (1, None, None),
            Kind::Rumours => (2, None, None),
            Kind::Ping(seq) => (3, Some(seq), None),
            Kind::Ack(seq) => (4, Some(seq), None),
            Kind::AskFor(seq, node) => (5, Some(seq), Some(node)),
            Kind::PingFor(seq, node) => (6, Some(seq), Some(node)),
            Kind::AckFor(seq, node) => (7, Some(seq), Some(node)),
            Kind::Vouch(seq, node) => (8, Some(seq), Some(node)),
            Kind::Parting => (9, None, None),
            Kind::Living(digest) => (10, Some(digest), None),
            Kind::Dead => (11, None, None),
        };
        bytes.push(code);
        bytes.extend(self.life.to_be_bytes());
        bytes.extend(seq.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend(node.into_iter().flat_map(|node| node.0));
        for rumour in &self.rumours {
            bytes.extend(rumour.node.0);
            bytes.extend(rumour.life.to_be_bytes());
            bytes.push(match rumour.state {
                State::Alive => 0,
                State::Suspect => 1,
                State::Down => 2,
            });
        }
        bytes
    }

    /// `None`: these bytes are no datagram.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [code] = take(&mut rest)?;
        let life = u64::from_be_bytes(take(&mut rest)?);
        let kind = match code {
            1 => Kind::Hello,
            2 => Kind::Rumours,
            9 => Kind::Parting,
            11 => Kind::Dead,
            3..=8 | 10 => {
                let seq = u32::from_be_bytes(take(&mut rest)?);
                match code {
                    3 => Kind::Ping(seq),
                    4 => Kind::Ack(seq),
                    5 => Kind::AskFor(seq, NodeId(take(&mut rest)?)),
                    6 => Kind::PingFor(seq, NodeId(take(&mut rest)?)),
                    7 => Kind::AckFor(seq, NodeId(take(&mut rest)?)),
                    8 => Kind::Vouch(seq, NodeId(take(&mut rest)?)),
                    _ => Kind::Living(seq),
                }
            }
            _ => return None,
        };
        if rest.len() > RUMOURS_MAX * RUMOUR_LEN {
            return None;
        }
        let mut rumours = Vec::new();
        while !rest.is_empty() {
            let node = NodeId(take(&mut rest)?);
            let life = u64::from_be_bytes(take(&mut rest)?);
            let state = match take(&mut rest)? {
                [0] => State::Alive,
                [1] => State::Suspect,
                [2] => State::Down,
                _ => return None,
            };
            rumours.push(Rumour { node, life, state });
        }
        Some(Self { life, kind, rumours })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: NodeId = NodeId([7; 32]);

    #[test]
    fn every_kind_is_read_as_it_was_written_and_cut_bytes_are_refused() {
        let rumour = Rumour { node: NODE, life: 9, state: State::Suspect };
        for kind in [
            Kind::Hello,
            Kind::Rumours,
            Kind::Ping(1),
            Kind::Ack(2),
            Kind::AskFor(3, NODE),
            Kind::PingFor(4, NODE),
            Kind::AckFor(5, NODE),
            Kind::Vouch(6, NODE),
            Kind::Parting,
            Kind::Living(7),
            Kind::Dead,
        ] {
            let datagram = Datagram { life: 1 << 40, kind, rumours: vec![rumour; RUMOURS_MAX] };
            let bytes = datagram.encode();
            assert_eq!(Datagram::decode(&bytes), Some(datagram));
            assert_eq!(Datagram::decode(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_ping_has_thirteen_bytes_for_ever() {
        let ping = Datagram { life: 0x1_0002, kind: Kind::Ping(5), rumours: Vec::new() };
        assert_eq!(ping.encode(), [3, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 5]);
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..1_200)) {
            if let Some(datagram) = Datagram::decode(&bytes) {
                prop_assert_eq!(datagram.encode(), bytes);
            }
        }
    }
}

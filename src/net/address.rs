//! Between libp2p's names and ours.

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::core::id::NodeId;

/// The node with this peer id; `None` if its key is not an ed25519 key.
pub(super) fn node_of(peer: &PeerId) -> Option<NodeId> {
    NodeId::from_peer_id_bytes(&peer.to_bytes())
}

/// The peer id of a node.
pub(super) fn peer_of(node: NodeId) -> Option<PeerId> {
    PeerId::from_bytes(&node.to_peer_id_bytes()).ok()
}

/// The peer that an address names at its end, and the address without it.
pub(super) fn split_peer(mut address: Multiaddr) -> (Option<PeerId>, Multiaddr) {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => {
            address.pop();
            (Some(peer), address)
        }
        _ => (None, address),
    }
}

/// Whether an address can only be reached on the machine itself.
pub fn is_loopback(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_loopback(),
        Some(Protocol::Ip6(ip)) => ip.is_loopback(),
        _ => false,
    }
}

/// Whether an address found by multicast is worth a dial: of a private network, not of this machine
/// alone. Containers' bridges are private too; a dial there fails and costs nothing.
pub(super) fn is_private(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => ip.is_private() || ip.is_link_local(),
        Some(Protocol::Ip6(ip)) => ip.is_unique_local() || ip.is_unicast_link_local(),
        _ => false,
    }
}

//! From what a user or a report names to a dial.
//!
//! All addresses of a peer are tried a few at a time by libp2p, and a wrong one (a container's
//! bridge that leads to somebody else) costs nothing but its try: the peer id is always checked,
//! and nobody is banned. When to dial again is the core's to say.

use std::io;
use std::net::IpAddr;

use libp2p::multiaddr::Protocol;
use libp2p::swarm::DialError;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::{Multiaddr, PeerId, TransportError};

use super::NetError;
use super::address::split_peer;

/// Addresses of one peer that are tried.
const ADDRESSES_MAX: usize = 32;

/// A dial of a known peer.
pub(super) fn to_peer(peer: PeerId, addresses: Vec<Multiaddr>) -> DialOpts {
    let addresses = addresses.into_iter().map(|address| split_peer(address).1);
    DialOpts::peer_id(peer)
        .addresses(addresses.take(ADDRESSES_MAX).collect())
        .condition(PeerCondition::DisconnectedAndNotDialing)
        .build()
}

/// A dial of whoever listens at an address; if the address names a peer, only of that one.
pub(super) fn to_address(address: Multiaddr) -> DialOpts {
    match split_peer(address) {
        (Some(peer), address) => to_peer(peer, vec![address]),
        (None, address) => DialOpts::unknown_peer_id().address(address).build(),
    }
}

/// Where a dial was tried, and why that failed: the innermost cause, in one line.
pub(super) fn reasons(error: &DialError) -> Vec<(Multiaddr, String)> {
    let tried = match error {
        DialError::Transport(tried) => tried,
        DialError::WrongPeerId { obtained, address } => {
            let why = format!("another node listens there: {obtained}");
            return vec![(split_peer(address.clone()).1, why)];
        }
        _ => return Vec::new(),
    };
    let reason = |error: &TransportError<io::Error>| {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        // Words of the other side may be in it: no line breaks, no terminal escapes.
        let told = cause.to_string().replace(char::is_control, " ");
        told.split(" (os error").next().unwrap_or_default().to_owned()
    };
    tried.iter().map(|(at, error)| (split_peer(at.clone()).1, reason(error))).collect()
}

/// Replaces a host name at the beginning of an address by what the system's resolver says it is:
/// `/etc/hosts` and all.
///
/// # Errors
/// If the name cannot be resolved.
pub(super) async fn resolve(address: Multiaddr) -> Result<Vec<Multiaddr>, NetError> {
    let mut parts = address.iter();
    let (name, wanted): (String, fn(&IpAddr) -> bool) = match parts.next() {
        Some(Protocol::Dns(name)) => (name.into_owned(), |_| true),
        Some(Protocol::Dns4(name)) => (name.into_owned(), IpAddr::is_ipv4),
        Some(Protocol::Dns6(name)) => (name.into_owned(), IpAddr::is_ipv6),
        _ => return Ok(vec![address]),
    };
    let rest: Multiaddr = parts.collect();
    let found = tokio::net::lookup_host((name, 0)).await?;
    let ips = found.map(|socket| socket.ip()).filter(wanted).take(ADDRESSES_MAX);
    Ok(ips
        .map(|ip| {
            let mut address = Multiaddr::from(ip);
            rest.iter().for_each(|part| address.push(part));
            address
        })
        .collect())
}

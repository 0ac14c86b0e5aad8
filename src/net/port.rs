//! Whether a port is another program's.
//!
//! libp2p shares its TCP ports with whoever shares them too, so that two daemons on one port would
//! both start, and each get some of the connections that are for the other.

use std::net::{IpAddr, SocketAddr};

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

/// Whether somebody listens already at a TCP address. What cannot be found out is not.
pub(super) fn is_taken(address: &Multiaddr) -> bool {
    tcp(address).is_some_and(|address| probe(address) == Err(Errno::ADDRINUSE))
}

/// The TCP address with a fixed port, if it is one.
fn tcp(address: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = address.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => IpAddr::V4(ip),
        Protocol::Ip6(ip) => IpAddr::V6(ip),
        _ => return None,
    };
    match parts.next()? {
        Protocol::Tcp(port) if port != 0 => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// Listens there for a moment, without sharing.
fn probe(address: SocketAddr) -> Result<(), Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family, SocketType::STREAM, None)?;
    // Connections of before that are about to end are nobody's.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_while_somebody_listens() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let address = |protocol: &str| format!("/ip4/127.0.0.1/{protocol}/{port}").parse().unwrap();
        assert!(is_taken(&address("tcp")));
        assert!(!is_taken(&address("udp")));
        assert!(!is_taken(&"/ip4/127.0.0.1/tcp/0".parse().unwrap()));
        assert!(!is_taken(&"/dns/localhost/tcp/1".parse().unwrap()));
        drop(other);
        assert!(!is_taken(&address("tcp")));
    }
}

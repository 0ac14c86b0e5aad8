//! What the swarm is made of: transports, and the protocols on them.

use std::time::Duration;

use libp2p::core::Transport as _;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::timeout::TransportTimeout;
use libp2p::core::upgrade::Version;
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{Swarm, connection_limits, gossipsub, identify, mdns, quic, swarm, tcp, tls, yamux};

use super::admission::Gate;
use super::gathered::{GatheredTls, reading};
use super::streams::Streams;
use super::{Config, NetError, gossip, silence};
use crate::wire::IDENTIFY;
use crate::wire::limits::{
    CONNECT_TIMEOUT, LINK_PROBE, LINK_SILENCE, PENDING_IN_MAX, PER_PEER_MAX,
};

/// The protocols of a node. The order matters to nobody.
#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    pub(super) limits: connection_limits::Behaviour,
    pub(super) identify: identify::Behaviour,
    pub(super) gossip: gossipsub::Behaviour,
    pub(super) mdns: Toggle<mdns::tokio::Behaviour>,
    pub(super) streams: Streams,
}

/// How long a connection without any stream stays open: two nodes that dialled each other at once
/// keep the one that they use.
const IDLE: Duration = Duration::from_secs(20);

/// Builds the swarm: TCP and QUIC, TLS 1.3 on both, and nobody gets past the gate unknown.
pub(super) fn swarm(
    config: &Config,
    keypair: &Keypair,
    gate: Gate,
) -> Result<Swarm<Behaviour>, NetError> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .map(|stream, _| reading(tcp::tokio::TcpStream(silence::limited(stream.0))))
        .upgrade(Version::V1Lazy)
        .authenticate(GatheredTls(tls::Config::new(keypair)?))
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let mut settings = quic::Config::new(keypair);
    settings.handshake_timeout = Duration::from_secs(5);
    settings.keep_alive_interval = LINK_PROBE;
    settings.max_idle_timeout = u32::try_from(LINK_SILENCE.as_millis()).unwrap_or(u32::MAX);
    let quic = quic::tokio::Transport::new(settings)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let transport = quic
        .or_transport(tcp)
        .map(|either, _| either.into_inner())
        .and_then(move |(peer, muxer), point| gate.admit(peer, muxer, point));
    let transport = TransportTimeout::new(transport, CONNECT_TIMEOUT).boxed();

    let limits = connection_limits::ConnectionLimits::default()
        .with_max_pending_incoming(Some(PENDING_IN_MAX))
        .with_max_established_per_peer(Some(PER_PEER_MAX))
        .with_max_established(Some(config.connections_max));
    let peer = keypair.public().to_peer_id();
    let identify = identify::Config::new(IDENTIFY.to_owned(), keypair.public())
        .with_agent_version(config.agent.clone())
        // Once, and when addresses change: never as a heartbeat.
        .with_interval(Duration::from_hours(1))
        .with_push_listen_addr_updates(true);
    let mdns = config
        .mdns
        .then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), peer))
        .transpose()?;
    let behaviour = Behaviour {
        limits: connection_limits::Behaviour::new(limits),
        identify: identify::Behaviour::new(identify),
        gossip: gossip::behaviour(keypair, config.mesh)?,
        mdns: mdns.into(),
        streams: Streams::default(),
    };
    let settings = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(IDLE)
        // One round trip less for each stream: a peer that does not know the protocol says so
        // later.
        .with_substream_upgrade_protocol_override(Version::V1Lazy);
    Ok(Swarm::new(transport, behaviour, peer, settings))
}

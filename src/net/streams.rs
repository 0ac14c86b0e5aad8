//! Opens and accepts the substreams of our own protocols.
//!
//! A behaviour of our own rather than the crate `libp2p-stream`, because that one drops an incoming
//! stream when a second comes before the first was taken up, which is what a burst of submissions
//! is. Here an incoming stream waits in its connection's queue, and several may be opened at once.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll, Waker};

use libp2p::PeerId;
use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo};
use libp2p::core::{Endpoint, Multiaddr};
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished};
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound,
};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
    NetworkBehaviour, NotifyHandler, Stream, StreamProtocol, StreamUpgradeError, SubstreamProtocol,
    THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::NetError;
use super::tied::Tied;
use crate::wire::limits::STREAM_TIMEOUT;
use crate::wire::{LINK, TASK};

/// The protocols that are served.
const SERVED: [StreamProtocol; 2] = [StreamProtocol::new(LINK), StreamProtocol::new(TASK)];

/// Who waits for a stream.
type Waiting = oneshot::Sender<Result<Tied, NetError>>;

/// A stream that a peer opened.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Who.
    pub(super) peer: PeerId,
    /// For what.
    pub(super) protocol: StreamProtocol,
    /// The stream.
    pub(super) stream: Tied,
}

/// A stream to be opened.
#[derive(Debug)]
pub(super) struct Open {
    protocol: StreamProtocol,
    answer: Waiting,
}

/// Our streams, on all connections.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Open connections of each peer, the latest last.
    connections: BTreeMap<PeerId, Vec<ConnectionId>>,
    events: VecDeque<ToSwarm<Incoming, Open>>,
    waker: Option<Waker>,
}

impl Streams {
    /// Opens a stream on the latest connection with a peer: an earlier one may be dead already.
    pub(super) fn open(&mut self, peer: PeerId, protocol: &'static str, answer: Waiting) {
        let Some(connection) = self.connections.get(&peer).and_then(|all| all.last()) else {
            // If nobody waits any more, nobody needs the answer.
            let _ = answer.send(Err(NetError::NotConnected));
            return;
        };
        self.events.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(*connection),
            event: Open { protocol: StreamProtocol::new(protocol), answer },
        });
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = Handler;
    type ToSwarm = Incoming;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(Handler::default())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(Handler::default())
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id,
                ..
            }) => self.connections.entry(peer_id).or_default().push(connection_id),
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, .. }) => {
                if let Some(all) = self.connections.get_mut(&peer_id) {
                    all.retain(|connection| *connection != connection_id);
                    if all.is_empty() {
                        self.connections.remove(&peer_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        _: ConnectionId,
        (protocol, stream): THandlerOutEvent<Self>,
    ) {
        self.events.push_back(ToSwarm::GenerateEvent(Incoming { peer, protocol, stream }));
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some(event) = self.events.pop_front() {
            return Poll::Ready(event);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Our streams on one connection.
#[derive(Debug, Default)]
pub(super) struct Handler {
    /// The connection's end, which its streams hear of.
    over: CancellationToken,
    /// To be opened.
    wanted: VecDeque<Open>,
    /// Opened by the peer, not taken up yet. The swarm bounds how many are negotiated at once, and
    /// the muxer how many exist.
    incoming: VecDeque<(StreamProtocol, Tied)>,
}

impl Handler {
    fn tie(&self, stream: Stream) -> Tied {
        Tied::new(stream, &self.over)
    }
}

impl Drop for Handler {
    /// A connection that broke is not closed first.
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Open;
    type ToBehaviour = (StreamProtocol, Tied);
    type InboundProtocol = Serve;
    type OutboundProtocol = Ask;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Waiting;

    fn listen_protocol(&self) -> SubstreamProtocol<Serve> {
        SubstreamProtocol::new(Serve, ()).with_timeout(STREAM_TIMEOUT)
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Ask, Waiting, Self::ToBehaviour>> {
        if let Some(incoming) = self.incoming.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(incoming));
        }
        if let Some(Open { protocol, answer }) = self.wanted.pop_front() {
            let protocol =
                SubstreamProtocol::new(Ask(protocol), answer).with_timeout(STREAM_TIMEOUT);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        // Woken by `on_behaviour_event` and `on_connection_event`: both are followed by a poll.
        Poll::Pending
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        self.over.cancel();
        Poll::Ready(None)
    }

    fn on_behaviour_event(&mut self, open: Open) {
        self.wanted.push_back(open);
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Serve, Ask, (), Waiting>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound {
                protocol: (protocol, stream),
                ..
            }) => self.incoming.push_back((protocol, self.tie(stream))),
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol,
                info,
            }) => {
                let _ = info.send(Ok(self.tie(protocol)));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let error = match error {
                    StreamUpgradeError::Timeout => NetError::Timeout,
                    StreamUpgradeError::NegotiationFailed => NetError::Unsupported,
                    StreamUpgradeError::Io(error) => NetError::Io(error),
                    StreamUpgradeError::Apply(never) => match never {},
                };
                let _ = info.send(Err(error));
            }
            _ => {}
        }
    }
}

/// Accepts any protocol that is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serve;

impl UpgradeInfo for Serve {
    type Info = StreamProtocol;
    type InfoIter = std::array::IntoIter<StreamProtocol, 2>;

    fn protocol_info(&self) -> Self::InfoIter {
        SERVED.into_iter()
    }
}

impl InboundUpgrade<Stream> for Serve {
    type Output = (StreamProtocol, Stream);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, protocol: StreamProtocol) -> Self::Future {
        ready(Ok((protocol, stream)))
    }
}

/// Asks for one protocol.
#[derive(Clone, Debug)]
pub(super) struct Ask(StreamProtocol);

impl UpgradeInfo for Ask {
    type Info = StreamProtocol;
    type InfoIter = std::iter::Once<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        std::iter::once(self.0.clone())
    }
}

impl OutboundUpgrade<Stream> for Ask {
    type Output = Stream;
    type Error = Infallible;
    type Future = Ready<Result<Stream, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, _: StreamProtocol) -> Self::Future {
        ready(Ok(stream))
    }
}

//! The task that owns the swarm. It routes; every arm calls one function.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt as _;
use libp2p::core::ConnectedPoint;
use libp2p::identity::Keypair;
use libp2p::swarm::{DialError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, gossipsub, mdns};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::FuturesAsyncReadCompatExt as _;

use super::address::{is_private, node_of, peer_of, split_peer};
use super::admission::{Admitted, Gate, Passage, Passed};
use super::behaviour::{Behaviour, BehaviourEvent, swarm};
use super::link::{self, Link};
use super::streams::Incoming;
use super::tied::Tied;
use super::{Command, Config, Event, NetError, dialer, gossip, port};
use crate::core::id::{MeshId, NodeId};
use crate::core::message::Message;
use crate::wire::limits::{LINKS_IN_MAX, TASK_STREAMS_MAX};
use crate::wire::{LINK, TASK};

/// How long goodbyes may take.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the swarm's own helpers report back to it.
#[derive(Debug)]
enum Notice {
    /// The stream of a link was opened, or not.
    LinkOpened(PeerId, Result<Tied, NetError>),
    /// The stream of a link has ended.
    LinkEnded(PeerId, u64),
    /// A stream that a peer opened has ended.
    IncomingEnded(PeerId, Carries),
}

/// What a stream is for.
#[derive(Clone, Copy, Debug)]
enum Carries {
    Link,
    Task,
}

/// One connected peer.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    address: Multiaddr,
    link: Option<(u64, Link)>,
    /// Streams that it has opened, and the pace of those that are links.
    tasks: usize,
    links_in: usize,
    pace: link::Pace,
    /// When it came through the gate for its latest connection.
    passage: Option<Passage>,
}

impl Peer {
    fn new(node: NodeId, address: Multiaddr, passage: Option<Passage>) -> Self {
        let pace = link::pace();
        Self { node, address, link: None, tasks: 0, links_in: 0, pace, passage }
    }

    /// How many streams it has opened, and how many it may.
    fn opened(&mut self, carries: Carries) -> (&mut usize, usize) {
        match carries {
            Carries::Link => (&mut self.links_in, LINKS_IN_MAX),
            Carries::Task => (&mut self.tasks, TASK_STREAMS_MAX),
        }
    }
}

/// The swarm and what it keeps of its peers.
pub(super) struct Task {
    swarm: Swarm<Behaviour>,
    mesh: MeshId,
    passed: Passed,
    peers: BTreeMap<PeerId, Peer>,
    listening: Vec<Multiaddr>,
    /// Numbers links, so that the end of an old one is not taken for that of a new one.
    links: u64,
    dropped: Arc<AtomicU64>,
    events: mpsc::Sender<Event>,
    notices_out: mpsc::Sender<Notice>,
    notices: mpsc::Receiver<Notice>,
}

impl Task {
    pub(super) fn new(
        config: Config,
        passed: Passed,
        events: mpsc::Sender<Event>,
    ) -> Result<Self, NetError> {
        if let Some(taken) = config.listen.iter().find(|address| port::is_taken(address)) {
            return Err(NetError::InUse(taken.clone()));
        }
        let keypair = Keypair::ed25519_from_bytes(config.seed)?;
        let admission = Arc::clone(&config.admission);
        let gate = Gate { admission, passed: passed.clone(), events: events.clone() };
        let mut swarm = swarm(&config, &keypair, gate)?;
        let mut failed = None;
        let mut listens = false;
        for address in config.listen {
            match swarm.listen_on(address.clone()) {
                Ok(_) => listens = true,
                Err(source) => {
                    // A machine without IPv6 listens on the rest.
                    tracing::warn!(%address, error = %source, "cannot listen there");
                    failed = Some(NetError::Listen { address, source });
                }
            }
        }
        if let (false, Some(error)) = (listens, failed) {
            return Err(error);
        }
        let (notices_out, notices) = mpsc::channel(256);
        Ok(Self {
            swarm,
            mesh: config.mesh,
            passed,
            peers: BTreeMap::new(),
            listening: Vec::new(),
            links: 0,
            dropped: Arc::default(),
            events,
            notices_out,
            notices,
        })
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(Command::Stop) => break,
                    Some(command) => self.on_command(command),
                },
                Some(notice) = self.notices.recv() => self.on_notice(notice).await,
                event = self.swarm.select_next_some() => self.on_swarm(event).await,
            }
        }
        self.farewell().await;
    }

    /// Lets queued messages go, then closes everything.
    async fn farewell(&mut self) {
        // Dropping the links ends their writers when their queues are empty.
        self.peers.values_mut().for_each(|peer| peer.link = None);
        let drive = async {
            let quiet = tokio::time::sleep(FAREWELL / 5);
            tokio::pin!(quiet);
            loop {
                tokio::select! {
                    () = &mut quiet => break,
                    _ = self.swarm.select_next_some() => {}
                }
            }
            let peers: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
            for peer in peers {
                // Not connected any more is as good.
                let _ = self.swarm.disconnect_peer_id(peer);
            }
            while self.swarm.connected_peers().next().is_some() {
                self.swarm.select_next_some().await;
            }
        };
        // Who does not take the goodbye finds out by itself.
        let _ = tokio::time::timeout(FAREWELL, drive).await;
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Dial(node, addresses) => self.dial(node, addresses),
            Command::DialAddress(address) => self.dial_address(address),
            Command::Gossip(message) => {
                gossip::publish(&mut self.swarm.behaviour_mut().gossip, self.mesh, &message);
            }
            Command::Hangup(node) => {
                if let Some(peer) = peer_of(node) {
                    let _ = self.swarm.disconnect_peer_id(peer);
                }
            }
            Command::OpenTask(node, answer) => {
                if let Some(peer) = peer_of(node) {
                    self.swarm.behaviour_mut().streams.open(peer, TASK, answer);
                }
            }
            Command::Send(node, message) => self.send(node, &message),
            // Handled by the loop.
            Command::Stop => {}
        }
    }

    fn dial(&mut self, node: NodeId, addresses: Vec<Multiaddr>) {
        let Some(peer) = peer_of(node) else { return };
        match self.swarm.dial(dialer::to_peer(peer, addresses)) {
            // Connected, or being dialled: what happens is told anyway.
            Ok(()) | Err(DialError::DialPeerConditionFalse(_)) => {}
            Err(error) => self.tell_dial_failed(Some(peer), &error),
        }
    }

    fn dial_address(&mut self, address: Multiaddr) {
        let own = split_peer(address.clone());
        if own.0 == Some(*self.swarm.local_peer_id()) || self.listening.contains(&own.1) {
            return;
        }
        match self.swarm.dial(dialer::to_address(address)) {
            Ok(()) | Err(DialError::DialPeerConditionFalse(_)) => {}
            Err(error) => self.tell_dial_failed(None, &error),
        }
    }

    /// A failed dial is told if there is room; the core tries again anyway.
    fn tell_dial_failed(&self, peer: Option<PeerId>, error: &DialError) {
        tracing::debug!(?peer, %error, "a dial failed");
        let peer = peer.as_ref().and_then(node_of);
        let _ = self.events.try_send(Event::DialFailed { peer, tried: dialer::reasons(error) });
    }

    fn send(&self, to: NodeId, message: &Message) {
        if let Some(Peer { link: Some((_, link)), .. }) =
            peer_of(to).and_then(|peer| self.peers.get(&peer))
        {
            link.send(to, message);
        }
    }

    async fn on_swarm(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(BehaviourEvent::Gossip(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            })) => self.on_gossip(propagation_source, &message_id, &message).await,
            SwarmEvent::Behaviour(BehaviourEvent::Mdns(mdns::Event::Discovered(found))) => {
                self.on_discovered(found).await;
            }
            SwarmEvent::Behaviour(BehaviourEvent::Streams(incoming)) => {
                self.on_incoming(incoming).await;
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                self.on_connected(peer_id, &endpoint);
            }
            SwarmEvent::ConnectionClosed { peer_id, num_established, .. } => {
                self.on_closed(peer_id, num_established).await;
            }
            SwarmEvent::OutgoingConnectionError { peer_id, error, .. } => {
                self.tell_dial_failed(peer_id, &error);
            }
            SwarmEvent::NewListenAddr { address, .. } => self.on_listening(address, true).await,
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.on_listening(address, false).await;
            }
            _ => {}
        }
    }

    fn on_connected(&mut self, peer: PeerId, endpoint: &ConnectedPoint) {
        let Some(node) = node_of(&peer) else { return };
        let address = endpoint.get_remote_address().clone();
        let passage = self.passed.passage(peer);
        let new = || Peer::new(node, address, passage);
        self.peers.entry(peer).or_insert_with(new).passage = passage;
        // Also when there is a link: the connection that it is on may be dead, and the peer back.
        self.open_link(peer);
    }

    fn open_link(&mut self, peer: PeerId) {
        let (answer, stream) = oneshot::channel();
        self.swarm.behaviour_mut().streams.open(peer, LINK, answer);
        let notices = self.notices_out.clone();
        tokio::spawn(async move {
            let stream = stream.await.unwrap_or(Err(NetError::NotConnected));
            let _ = notices.send(Notice::LinkOpened(peer, stream)).await;
        });
    }

    async fn on_closed(&mut self, peer: PeerId, left: u32) {
        if left > 0 {
            return;
        }
        let Some(Peer { node, link, passage, .. }) = self.peers.remove(&peer) else { return };
        // A new connection may be through the gate already and not be told of yet.
        self.passed.remove(peer, passage);
        if link.is_some() {
            self.tell(Event::Unlinked(node)).await;
        }
    }

    async fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::LinkOpened(peer, Ok(stream)) => self.on_link_opened(peer, stream).await,
            Notice::LinkOpened(peer, Err(error)) => {
                tracing::debug!(%peer, %error, "a link cannot be opened");
            }
            Notice::LinkEnded(peer, number) => self.on_link_ended(peer, number).await,
            Notice::IncomingEnded(peer, carries) => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    let (open, _) = peer.opened(carries);
                    *open = open.saturating_sub(1);
                }
            }
        }
    }

    async fn on_link_opened(&mut self, peer: PeerId, stream: Tied) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let (link, outgoing) = Link::new(Arc::clone(&self.dropped));
        self.links += 1;
        let number = self.links;
        entry.link = Some((number, link));
        // One that is gone again is told of next.
        let Some(Admitted { rights, .. }) = self.passed.find(peer) else { return };
        let event = Event::Linked { peer: entry.node, rights, address: entry.address.clone() };
        let notices = self.notices_out.clone();
        tokio::spawn(async move {
            if let Err(error) = outgoing.write(stream).await {
                tracing::debug!(%peer, %error, "a link ended");
            }
            let _ = notices.send(Notice::LinkEnded(peer, number)).await;
        });
        self.tell(event).await;
    }

    async fn on_link_ended(&mut self, peer: PeerId, number: u64) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        if entry.link.as_ref().is_some_and(|(current, _)| *current == number) {
            entry.link = None;
            let node = entry.node;
            self.tell(Event::Unlinked(node)).await;
            self.open_link(peer);
        }
    }

    async fn on_incoming(&mut self, incoming: Incoming) {
        let Incoming { peer, protocol, mut stream } = incoming;
        let (Some(from), Some(admitted)) = (node_of(&peer), self.passed.find(peer)) else { return };
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let carries = if protocol.as_ref() == LINK { Carries::Link } else { Carries::Task };
        let (open, limit) = entry.opened(carries);
        if *open >= limit {
            tracing::warn!(peer = ?from, ?carries, limit, "a peer has too many streams open");
            return;
        }
        *open += 1;
        let ended = stream.count();
        let notices = self.notices_out.clone();
        tokio::spawn(async move {
            // Dropped with the stream.
            let _ = ended.await;
            let _ = notices.send(Notice::IncomingEnded(peer, carries)).await;
        });
        match carries {
            Carries::Link => {
                let pace = Arc::clone(&entry.pace);
                tokio::spawn(link::read(from, stream, pace, self.events.clone()));
            }
            Carries::Task => {
                let stream = stream.compat();
                self.tell(Event::TaskStream { from, admitted, stream }).await;
            }
        }
    }

    async fn on_gossip(
        &mut self,
        from: PeerId,
        id: &gossipsub::MessageId,
        message: &gossipsub::Message,
    ) {
        let behaviour = &mut self.swarm.behaviour_mut().gossip;
        if let Some(message) = gossip::receive(behaviour, from, id, message) {
            self.tell(Event::Gossiped(message)).await;
        }
    }

    async fn on_discovered(&mut self, found: Vec<(PeerId, Multiaddr)>) {
        for (peer, address) in found {
            if let Some(peer) = node_of(&peer).filter(|_| is_private(&address)) {
                self.tell(Event::Discovered { peer, address: split_peer(address).1 }).await;
            }
        }
    }

    async fn on_listening(&mut self, address: Multiaddr, now: bool) {
        self.listening.retain(|known| *known != address);
        if now {
            self.listening.push(address);
        }
        self.tell(Event::Listening(self.listening.clone())).await;
    }

    /// Waits if the daemon is behind: see [`super::EVENTS_MAX`].
    async fn tell(&mut self, event: Event) {
        // A daemon that is gone stops the task by its commands.
        let _ = self.events.send(event).await;
    }
}

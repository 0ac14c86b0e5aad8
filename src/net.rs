//! The network: libp2p, one file per protocol.
//!
//! One task owns the swarm and only routes: commands in, events out, both bounded. What a peer may
//! cost is in `wire/limits.rs`. Nothing here decides whom to be connected with, or what a message
//! means.

mod address;
mod admission;
mod behaviour;
mod dialer;
mod frames;
mod gathered;
mod gossip;
mod link;
mod port;
mod silence;
mod streams;
mod task;
#[cfg(test)]
mod tests;
mod tied;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libp2p::Multiaddr;
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};

pub use self::address::is_loopback;
pub use self::admission::{Admission, Admitted};
use crate::core::id::{MeshId, NodeId};
use crate::core::message::{Gossip, Message};
use crate::core::rights::Rights;

/// A stream about one task, as tokio reads and writes.
pub type TaskStream = Compat<tied::Tied>;

/// Commands that may wait for the swarm, and events for the daemon. A daemon that does not read its
/// events stops the swarm, and with it every peer that sends: backpressure, not memory.
const COMMANDS_MAX: usize = 4_096;
const EVENTS_MAX: usize = 1_024;

/// How the reason begins with which the other side refuses this one, in [`Event::Refused`].
pub const REFUSED_THERE: &str = "refused by the other side";

/// What a node's network is made of.
#[derive(Clone)]
pub struct Config {
    /// The secret of the node's identity.
    pub seed: [u8; 32],
    /// The mesh.
    pub mesh: MeshId,
    /// Where to listen. Those that fail are reported; one must work.
    pub listen: Vec<Multiaddr>,
    /// Whether to look for peers by multicast, and be found.
    pub mdns: bool,
    /// Name and version of the program, told to members.
    pub agent: String,
    /// Connections in all.
    pub connections_max: u32,
    /// Who may be a peer.
    pub admission: Arc<dyn Admission>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// What has happened on the network.
#[derive(Debug)]
pub enum Event {
    /// A dial failed. If the peer was known, this is who could not be reached.
    DialFailed {
        /// Who.
        peer: Option<NodeId>,
        /// Where it was tried, and why that failed, for people.
        tried: Vec<(Multiaddr, String)>,
    },
    /// A peer was found by multicast.
    Discovered {
        /// Who.
        peer: NodeId,
        /// Where.
        address: Multiaddr,
    },
    /// Something came by gossip.
    Gossiped(Gossip),
    /// A link is open: messages can be sent. May come again for the same peer when it has come
    /// back.
    Linked {
        /// Who.
        peer: NodeId,
        /// What it may do.
        rights: Rights,
        /// Where it is.
        address: Multiaddr,
    },
    /// The addresses at which this node listens are these now.
    Listening(Vec<Multiaddr>),
    /// A message came over a link.
    Received(NodeId, Message),
    /// A peer was not admitted, here or there.
    Refused {
        /// Who, if it has an id.
        peer: Option<NodeId>,
        /// Where.
        address: Multiaddr,
        /// Why, for people.
        why: String,
    },
    /// A peer opened a stream about a task.
    TaskStream {
        /// Who.
        from: NodeId,
        /// What it may do.
        admitted: Admitted,
        /// The stream.
        stream: TaskStream,
    },
    /// A link is gone.
    Unlinked(NodeId),
}

/// Why something on the network cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The settings of gossipsub are wrong: a bug.
    #[error("gossip cannot be set up: {0}")]
    Gossip(String),
    /// A socket failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Another program listens there.
    #[error(
        "cannot listen on {0}: another program does (a second daemon?): choose another port with --listen"
    )]
    InUse(Multiaddr),
    /// The identity is not a key.
    #[error("the node's key cannot be used")]
    Key(#[from] libp2p::identity::DecodingError),
    /// No address can be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: Multiaddr,
        /// Why.
        #[source]
        source: libp2p::TransportError<std::io::Error>,
    },
    /// There is no connection with that peer.
    #[error("there is no connection")]
    NotConnected,
    /// The network has stopped.
    #[error("the network is stopped")]
    Stopped,
    /// The other side did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] libp2p::tls::certificate::GenError),
    /// The other side does not know the protocol: another version.
    #[error("the other side does not know the protocol: it runs another version")]
    Unsupported,
}

/// What the swarm is told.
#[derive(Debug)]
enum Command {
    Dial(NodeId, Vec<Multiaddr>),
    DialAddress(Multiaddr),
    Gossip(Gossip),
    Hangup(NodeId),
    OpenTask(NodeId, oneshot::Sender<Result<tied::Tied, NetError>>),
    Send(NodeId, Message),
    Stop,
}

/// The door to the network.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    /// Commands that were dropped because the swarm did not keep up.
    dropped: Arc<AtomicU64>,
    passed: admission::Passed,
}

/// Starts the network on the current tokio runtime.
///
/// # Errors
/// If no swarm can be built or none of the addresses can be listened on.
pub fn start(config: Config) -> Result<(Handle, mpsc::Receiver<Event>), NetError> {
    let (commands, commands_in) = mpsc::channel(COMMANDS_MAX);
    let (events_out, events) = mpsc::channel(EVENTS_MAX);
    let passed = admission::Passed::default();
    let task = task::Task::new(config, passed.clone(), events_out)?;
    tokio::spawn(task.run(commands_in));
    Ok((Handle { commands, dropped: Arc::default(), passed }, events))
}

impl Handle {
    /// Sends a message over the link with a peer. Never waits: what cannot be sent is dropped.
    pub fn send(&self, to: NodeId, message: Message) {
        self.command(Command::Send(to, message));
    }

    /// Tells everybody.
    pub fn gossip(&self, message: Gossip) {
        self.command(Command::Gossip(message));
    }

    /// Dials a peer at any of these addresses, unless it is connected.
    pub fn dial(&self, peer: NodeId, addresses: Vec<Multiaddr>) {
        self.command(Command::Dial(peer, addresses));
    }

    /// Dials whoever listens at an address; a host name in it is resolved first.
    pub fn dial_address(&self, address: Multiaddr) {
        let handle = self.clone();
        tokio::spawn(async move {
            match dialer::resolve(address.clone()).await {
                Ok(found) => {
                    found.into_iter().for_each(|one| handle.command(Command::DialAddress(one)));
                }
                Err(error) => tracing::warn!(%address, %error, "an address cannot be resolved"),
            }
        });
    }

    /// What a peer may do; nothing if there is no connection with it.
    pub fn rights(&self, peer: NodeId) -> Option<Rights> {
        Some(self.passed.find(address::peer_of(peer)?)?.rights)
    }

    /// Closes all connections with a peer.
    pub fn hangup(&self, peer: NodeId) {
        self.command(Command::Hangup(peer));
    }

    /// Opens a stream about a task.
    ///
    /// # Errors
    /// If there is no connection with the peer, or it does not serve the protocol.
    pub async fn open_task(&self, peer: NodeId) -> Result<TaskStream, NetError> {
        let (answer, stream) = oneshot::channel();
        let command = Command::OpenTask(peer, answer);
        self.commands.send(command).await.map_err(|_| NetError::Stopped)?;
        let stream = tokio::time::timeout(crate::wire::limits::STREAM_TIMEOUT, stream).await;
        // The outer error is the timer's, the middle one that of a connection that ended meanwhile.
        match stream {
            Ok(Ok(stream)) => Ok(stream?.compat()),
            Ok(Err(_closed)) => Err(NetError::NotConnected),
            Err(_elapsed) => Err(NetError::Timeout),
        }
    }

    /// Sends what is queued, closes all connections, and stops.
    pub async fn stop(&self) {
        // Already stopped is as good.
        let _ = self.commands.send(Command::Stop).await;
        self.commands.closed().await;
    }

    fn command(&self, command: Command) {
        if self.commands.try_send(command).is_err() {
            let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_power_of_two() && !self.commands.is_closed() {
                tracing::warn!(dropped = count, "the network does not keep up");
            }
        }
    }
}

//! Decides who is alive, by SWIM.
//!
//! SWIM (Das, Gupta, Motivala 2002) with suspicion, in the crate `foca`. Each member probes one
//! other at a time, so the load of a member does not grow with the mesh; a silent member is first
//! suspected and can refute with a higher incarnation. A lost connection is a hint that starts a
//! probe at once, never a verdict. Gossip alone can miss members (updates stop being retransmitted),
//! so repair feeds membership too.
//!
//! In: datagrams, met and lost peers, states learnt by repair. Out: datagrams, verdicts.
//! Keeps: foca's member list and its timers, hidden behind one deadline.
//! Always true: a member was up before it is down; this node is never in its own list.

use super::id::NodeId;
use super::outbox::Outbox;
use super::time::{Duration, Instant};

/// What membership is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A datagram from a linked peer.
    Datagram(Vec<u8>),
    /// The deadline has come.
    Deadline,
    /// This node is about to stop: say goodbye.
    Leave,
    /// The link to a peer is gone: look after it now.
    LinkLost(NodeId),
    /// A link to a peer was opened: tell it that we exist.
    Met(NodeId),
    /// A peer's view of who exists, by repair: (node, generation). Never a death.
    Repaired(Vec<(NodeId, u64)>),
}

/// What membership wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This member is dead, or has left.
    Down(NodeId),
    /// Send this datagram; if there is no link it is dropped (and a dial wished for).
    Send(NodeId, Vec<u8>),
    /// This member is alive.
    Up(NodeId),
}

/// How patient SWIM is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time between two probes.
    pub probe_every: Duration,
    /// How long a probe may take before others are asked to probe.
    pub probe_wait: Duration,
    /// How long a suspect may refute.
    pub suspect_for: Duration,
}

/// The members of the mesh.
#[derive(Debug)]
pub struct Membership {
    _todo: (NodeId, Outbox<Effect>, Instant),
}

//! Every limit on what a peer may send, in one table, with its reason.

use std::time::Duration;

/// Bytes of one message on a link: a page of reports (256 KiB) and a presentation of 256 asks with
/// their refusals fit.
pub const LINK_FRAME_MAX: usize = 1024 * 1024;

/// Bytes of one gossiped message: a report of 128 GPUs fits.
pub const GOSSIP_MAX: usize = 128 * 1024;

/// Bytes of either side's first word: a chain of eight credentials of 1 KiB fits.
pub const ADMIT_MAX: usize = 32 * 1024;

/// Nested values in a message: ours have at most a dozen levels.
pub const DEPTH_MAX: usize = 64;

/// Messages of one peer that are handled in a second, and in one burst. More wait in the peer's
/// own queue: reading stops, and the peer drops what it cannot send. 200 short tasks a second of
/// one home cost 1,600.
pub const LINK_RATE: u32 = 4_000;

/// See [`LINK_RATE`].
pub const LINK_BURST: u32 = 8_000;

/// Messages that wait for one slow peer; of more, the newest are dropped and counted. SWIM, repair
/// and repeated asks are made for loss.
pub const LINK_QUEUE_MAX: usize = 1_024;

/// Bytes that wait for one slow peer; see [`LINK_QUEUE_MAX`].
pub const LINK_QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long either side of a connection may take to say who it is.
pub const ADMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long setting up a connection may take in all.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection whose other side acknowledges nothing for so long is over: a cable pulled, or one
/// direction cut. The kernel's own patience is a quarter of an hour, in which neither side dials
/// again.
pub const LINK_SILENCE: Duration = Duration::from_secs(10);

/// How long a connection is quiet before its other side is asked whether it is there.
pub const LINK_PROBE: Duration = Duration::from_secs(4);

/// How long opening a stream may take on a connection that exists.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that are being set up by others: a flood of half-open ones ends here.
pub const PENDING_IN_MAX: u32 = 128;

/// Connections with one peer: both may dial at once, twice.
pub const PER_PEER_MAX: u32 = 4;

/// Links that one peer may have open here: on each of its connections one, and the one before it
/// whose end was not noticed yet.
pub const LINKS_IN_MAX: usize = 2 * PER_PEER_MAX as usize;

/// Task streams that one peer may have open here.
pub const TASK_STREAMS_MAX: usize = 1_024;

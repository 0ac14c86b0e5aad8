//! One link: messages out over one stream, messages in over another, both bounded.
//!
//! What cannot be sent is dropped and counted, never queued without end: everything on a link is
//! made for loss (SWIM, repair, asks that are repeated). A peer that sends too much is read more
//! slowly, which it notices by its own queue.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures::AsyncWriteExt as _;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::mpsc;

use super::Event;
use super::frames::{read_frame, write_frame};
use super::tied::Tied;
use crate::core::id::NodeId;
use crate::core::message::Message;
use crate::wire::codec;
use crate::wire::limits::{
    LINK_BURST, LINK_FRAME_MAX, LINK_QUEUE_BYTES_MAX, LINK_QUEUE_MAX, LINK_RATE,
};

/// The outgoing side of a link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    queue: mpsc::Sender<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

impl Link {
    /// A link whose stream is written by [`write`].
    pub(super) fn new(dropped: Arc<AtomicU64>) -> (Self, Outgoing) {
        let (queue, frames) = mpsc::channel(LINK_QUEUE_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        (Self { queue, bytes: Arc::clone(&bytes), dropped }, Outgoing { frames, bytes })
    }

    /// Queues a message; `false` if it was dropped.
    pub(super) fn send(&self, to: NodeId, message: &Message) -> bool {
        let frame = codec::encode(message);
        let len = frame.len();
        let fits = len <= LINK_FRAME_MAX
            && self.bytes.load(Ordering::Relaxed) + len <= LINK_QUEUE_BYTES_MAX;
        if fits {
            self.bytes.fetch_add(len, Ordering::Relaxed);
            if self.queue.try_send(frame).is_ok() {
                return true;
            }
            self.bytes.fetch_sub(len, Ordering::Relaxed);
        }
        let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            tracing::warn!(peer = ?to, len, dropped = count, "messages to a slow peer are dropped");
        }
        false
    }
}

/// What a link's stream has to carry.
#[derive(Debug)]
pub(super) struct Outgoing {
    frames: mpsc::Receiver<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
}

impl Outgoing {
    /// Writes what is queued until the stream or the link ends. Flushes when nothing more waits.
    pub(super) async fn write(mut self, mut stream: Tied) -> std::io::Result<()> {
        while let Some(frame) = self.frames.recv().await {
            let mut next = Some(frame);
            while let Some(frame) = next {
                self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
                write_frame(&mut stream, &frame).await?;
                next = self.frames.try_recv().ok();
            }
            stream.flush().await?;
        }
        stream.close().await
    }
}

/// How many messages a peer may send: one for all its links, of which an honest one has one.
pub(super) type Pace = Arc<DefaultDirectRateLimiter>;

/// The pace of a peer that has just come.
pub(super) fn pace() -> Pace {
    let rate = NonZeroU32::new(LINK_RATE).unwrap_or(NonZeroU32::MIN);
    let burst = NonZeroU32::new(LINK_BURST).unwrap_or(NonZeroU32::MIN);
    Arc::new(RateLimiter::direct(Quota::per_second(rate).allow_burst(burst)))
}

/// Reads a peer's messages until the stream ends or the peer talks nonsense.
pub(super) async fn read(from: NodeId, mut stream: Tied, pace: Pace, events: mpsc::Sender<Event>) {
    loop {
        let frame = match read_frame(&mut stream, LINK_FRAME_MAX).await {
            Ok(frame) => frame,
            Err(error) => {
                tracing::debug!(peer = ?from, %error, "a link ended");
                return;
            }
        };
        pace.until_ready().await;
        let message = match codec::decode(&frame) {
            Ok(message) => message,
            Err(error) => {
                // One bad message ends the link, not the daemon; the peer may open another.
                tracing::warn!(peer = ?from, %error, "a peer sent what cannot be read");
                return;
            }
        };
        if events.send(Event::Received(from, message)).await.is_err() {
            return;
        }
    }
}

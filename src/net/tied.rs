//! A stream that ends when its connection does.
//!
//! The muxer alone does not see to that: yamux 0.14 wakes the readers of its streams when the other
//! side closes a connection or it breaks, and leaves them asleep for ever when this side closes it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{AsyncRead, AsyncWrite};
use libp2p::Stream;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// See above. What had arrived before the end can still be read.
#[derive(Debug)]
pub struct Tied {
    stream: Stream,
    reading: Over,
    writing: Over,
    /// Dropped with the stream.
    counted: Option<oneshot::Sender<Infallible>>,
}

/// The connection's end; one for each direction, as either may be polled by another task.
#[derive(Debug)]
struct Over(Pin<Box<WaitForCancellationFutureOwned>>);

impl Tied {
    /// A stream of a connection; the token is cancelled when that ends.
    pub(super) fn new(stream: Stream, connection: &CancellationToken) -> Self {
        let over = || Over(Box::pin(connection.clone().cancelled_owned()));
        Self { stream, reading: over(), writing: over(), counted: None }
    }

    /// Resolves when the stream is dropped.
    pub(super) fn count(&mut self) -> oneshot::Receiver<Infallible> {
        let (counted, dropped) = oneshot::channel();
        self.counted = Some(counted);
        dropped
    }
}

impl Over {
    /// What the stream says, or that it will not say anything more.
    fn or<T>(&mut self, said: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if said.is_pending() && self.0.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        said
    }
}

impl AsyncRead for Tied {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.reading.or(read, cx)
    }
}

impl AsyncWrite for Tied {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.writing.or(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.writing.or(flushed, cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_close(cx);
        self.writing.or(closed, cx)
    }
}

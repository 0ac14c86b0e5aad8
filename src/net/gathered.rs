//! Fewer and larger writes and reads on a TCP connection.
//!
//! The muxer writes each frame's head and body by themselves and flushes after each frame, and TLS
//! reads four KiB at a time: each a record or a system call, and a wake-up at the other side. Here
//! what is written is gathered until the muxer has nothing more to write. It says so by reading:
//! yamux looks for frames to send until there is none, and only then reads. So a flush is put off
//! until the next read, and what a task sends in one go (a control message, bytes, the end of a
//! stream) travels together.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::io::BufReader;
use futures::{AsyncRead, AsyncWrite, FutureExt as _, TryFutureExt as _};
use libp2p::core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade, UpgradeInfo};
use libp2p::{PeerId, tls};

/// Bytes that are gathered at most: four TLS records.
const GATHERED_MAX: usize = 64 * 1024;

/// Bytes that are read at once.
const READ_AHEAD: usize = 32 * 1024;

/// A connection from which as much as is there is read at once; what TLS stands on.
pub(super) fn reading<S: AsyncRead>(stream: S) -> BufReader<S> {
    BufReader::with_capacity(READ_AHEAD, stream)
}

/// TLS whose streams gather what is written.
#[derive(Clone)]
pub(super) struct GatheredTls(pub(super) tls::Config);

impl UpgradeInfo for GatheredTls {
    type Info = <tls::Config as UpgradeInfo>::Info;
    type InfoIter = <tls::Config as UpgradeInfo>::InfoIter;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.protocol_info()
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> InboundConnectionUpgrade<C>
    for GatheredTls
{
    type Output = (PeerId, Gathered<tls::TlsStream<C>>);
    type Error = tls::UpgradeError;
    type Future = BoxFuture<'static, Result<Self::Output, Self::Error>>;

    fn upgrade_inbound(self, socket: C, info: Self::Info) -> Self::Future {
        let upgraded = self.0.upgrade_inbound(socket, info);
        upgraded.map_ok(|(peer, stream)| (peer, Gathered::new(stream))).boxed()
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + 'static> OutboundConnectionUpgrade<C>
    for GatheredTls
{
    type Output = (PeerId, Gathered<tls::TlsStream<C>>);
    type Error = tls::UpgradeError;
    type Future = BoxFuture<'static, Result<Self::Output, Self::Error>>;

    fn upgrade_outbound(self, socket: C, info: Self::Info) -> Self::Future {
        let upgraded = self.0.upgrade_outbound(socket, info);
        upgraded.map_ok(|(peer, stream)| (peer, Gathered::new(stream))).boxed()
    }
}

/// See the module. For one task that reads whenever it has written all it had to.
pub(super) struct Gathered<S> {
    stream: S,
    /// Written but not passed on: what begins at `passed`.
    written: Vec<u8>,
    passed: usize,
    /// Whether the stream below may hold something back.
    unflushed: bool,
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, written: Vec::new(), passed: 0, unflushed: false }
    }

    /// Passes on what was gathered.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.passed < self.written.len() {
            let rest = &self.written[self.passed..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.passed += len,
            }
        }
        self.written.clear();
        self.passed = 0;
        Poll::Ready(Ok(()))
    }

    /// Passes on what was gathered, and sees it go.
    fn poll_let_go(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_pass(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.written.len() >= GATHERED_MAX {
            ready!(self.poll_pass(cx))?;
        }
        let len = bytes.len().min(GATHERED_MAX - self.written.len());
        self.written.extend_from_slice(&bytes[..len]);
        self.unflushed = true;
        Poll::Ready(Ok(len))
    }

    /// Done by the next read.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_let_go(cx))?;
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // If it cannot go now, this task is woken when it can, and reads meanwhile.
        if let Poll::Ready(Err(error)) = self.poll_let_go(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests;

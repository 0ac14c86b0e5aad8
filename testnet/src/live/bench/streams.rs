//! Copies over loopback with nothing around them, to compare with.

use std::task::Poll;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use futures::future::poll_fn;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt as _, SubstreamBox};
use libp2p::core::transport::{Boxed, DialOpts, ListenerId, PortUse, TransportEvent};
use libp2p::core::upgrade::Version;
use libp2p::core::{Endpoint, Transport as _};
use libp2p::{PeerId, identity, tcp, tls, yamux};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};

use crate::stopwatch::Stopwatch;

/// Bytes that are written at once: as many as a frame of a task stream has.
const PIECE: usize = 64 * 1024;

/// A copy over TCP, in MiB per second.
pub(super) async fn tcp(bytes: u64) -> Result<f64> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let near = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
    let (far, _) = listener.accept().await?;
    copy(near, far, bytes).await
}

/// A copy over one libp2p stream, in MiB per second: TCP, TLS 1.3 and yamux, as between daemons.
pub(super) async fn libp2p(bytes: u64) -> Result<f64> {
    let mut listener = transport()?;
    listener.listen_on(ListenerId::next(), "/ip4/127.0.0.1/tcp/0".parse()?)?;
    let Some(TransportEvent::NewAddress { listen_addr, .. }) = listener.next().await else {
        bail!("libp2p cannot listen on loopback");
    };
    let mut dialler = transport()?;
    let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
    let dial = dialler.dial(listen_addr, options)?;
    let accept = async {
        while let Some(event) = listener.next().await {
            if let TransportEvent::Incoming { upgrade, .. } = event {
                return Ok(upgrade.await?.1);
            }
        }
        bail!("nobody dialled")
    };
    let (mut near, mut far) = tokio::try_join!(async { Ok(dial.await?.1) }, accept)?;
    let mut near_stream = poll_fn(|cx| near.poll_outbound_unpin(cx)).await?.compat();
    drive(near);
    // The other side hears of a stream by its first bytes.
    near_stream.write_all(b"!").await?;
    near_stream.flush().await?;
    let mut far_stream = inbound(&mut far).await?;
    drive(far);
    far_stream.read_exact(&mut [0; 1]).await?;
    copy(near_stream, far_stream, bytes).await
}

fn transport() -> Result<Boxed<(PeerId, StreamMuxerBox)>> {
    let key = identity::Keypair::generate_ed25519();
    Ok(tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(Version::V1)
        .authenticate(tls::Config::new(&key)?)
        .multiplex(yamux::Config::default())
        .boxed())
}

async fn inbound(muxer: &mut StreamMuxerBox) -> Result<Compat<SubstreamBox>> {
    let stream = poll_fn(|cx| match muxer.poll_inbound_unpin(cx) {
        Poll::Ready(stream) => Poll::Ready(stream),
        Poll::Pending => match muxer.poll_unpin(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        },
    });
    Ok(stream.await?.compat())
}

/// A connection moves only while it is polled; until the other side has gone.
fn drive(mut muxer: StreamMuxerBox) {
    tokio::spawn(poll_fn(move |cx| {
        loop {
            match muxer.poll_unpin(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }));
}

async fn copy<W, R>(mut near: W, mut far: R, bytes: u64) -> Result<f64>
where
    W: AsyncWrite + Unpin + Send + 'static,
    R: AsyncRead + Unpin,
{
    let watch = Stopwatch::start();
    let writer = tokio::spawn(async move {
        let piece = vec![7; PIECE];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(PIECE as u64) as usize;
            near.write_all(&piece[..len]).await?;
            left -= len as u64;
        }
        near.flush().await?;
        anyhow::Ok(near)
    });
    let mut buffer = vec![0; PIECE];
    let mut read = 0;
    while read < bytes {
        let len = far.read(&mut buffer).await?;
        ensure!(len > 0, "a copy broke off after {read} bytes");
        read += len as u64;
    }
    let seconds = watch.ms() / 1_000.0;
    // Open until everything has been read.
    drop(writer.await.context("the writer did not panic")??);
    Ok(bytes as f64 / f64::from(1 << 20) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_that_is_written_is_read() {
        for bytes in [1, 3 << 20] {
            assert!(tcp(bytes).await.unwrap() > 0.0);
            assert!(libp2p(bytes).await.unwrap() > 0.0);
        }
    }
}

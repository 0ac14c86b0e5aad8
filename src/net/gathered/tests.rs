//! What is written together travels together, in order, and bounded.

use std::sync::{Arc, Mutex};

use futures::task::noop_waker;
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use super::*;

/// What was written at once, each time; reads never come to an end. Takes so many bytes in all.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<(Vec<Vec<u8>>, usize)>>);

impl Wire {
    fn with_room(room: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), room))))
    }

    fn taken(&self) -> Vec<usize> {
        self.0.lock().unwrap().0.iter().map(Vec::len).collect()
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.0.lock().unwrap();
        let len = bytes.len().min(wire.1);
        if len == 0 {
            return Poll::Pending;
        }
        wire.1 -= len;
        wire.0.push(bytes[..len].to_vec());
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
}

#[test]
fn what_is_written_before_a_read_travels_together() {
    let waker = noop_waker();
    let cx = &mut Context::from_waker(&waker);
    let wire = Wire::with_room(usize::MAX);
    let mut stream = Gathered::new(wire.clone());
    for part in [&b"head"[..], b"body", b"end"] {
        assert!(Pin::new(&mut stream).poll_write(cx, part).is_ready());
        assert!(Pin::new(&mut stream).poll_flush(cx).is_ready());
    }
    assert!(wire.taken().is_empty());
    assert!(Pin::new(&mut stream).poll_read(cx, &mut [0; 8]).is_pending());
    assert_eq!(wire.taken(), [11]);
    assert!(Pin::new(&mut stream).poll_read(cx, &mut [0; 8]).is_pending());
    assert_eq!(wire.taken(), [11]);
}

#[test]
fn no_more_than_the_limit_is_gathered() {
    let waker = noop_waker();
    let cx = &mut Context::from_waker(&waker);
    let wire = Wire::with_room(100);
    let mut stream = Gathered::new(wire.clone());
    let much = vec![7; GATHERED_MAX + 1];
    let Poll::Ready(Ok(len)) = Pin::new(&mut stream).poll_write(cx, &much) else { panic!() };
    assert_eq!(len, GATHERED_MAX);
    // The other side does not keep up.
    assert!(Pin::new(&mut stream).poll_write(cx, &much[len..]).is_pending());
    assert_eq!(wire.taken(), [100]);
    wire.0.lock().unwrap().1 = usize::MAX;
    assert!(Pin::new(&mut stream).poll_write(cx, &much[len..]).is_ready());
    assert!(Pin::new(&mut stream).poll_close(cx).is_ready());
    assert_eq!(wire.taken(), [100, GATHERED_MAX - 100, 1]);
}

#[tokio::test]
async fn bytes_arrive_in_order_whatever_the_sizes() {
    let (near, far) = tokio::io::duplex(1_000);
    let bytes: Vec<u8> = (0..=255).cycle().take(500_000).collect();
    let sent = bytes.clone();
    let writer = tokio::spawn(async move {
        let mut stream = Gathered::new(near.compat());
        for part in sent.chunks(3_333) {
            stream.write_all(part).await.unwrap();
        }
        stream.close().await.unwrap();
    });
    let mut came = Vec::new();
    reading(far.compat()).read_to_end(&mut came).await.unwrap();
    writer.await.unwrap();
    assert!(came == bytes);
}

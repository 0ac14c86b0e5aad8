//! Whether a user is still there, also while nothing that they sent is read.
//!
//! The end of a stream is seen behind what was sent before it. A user who was killed while their
//! task reads no input would never be missed. The system knows better: the socket has hung up.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// A second descriptor of a user's socket: what is only for it may be waited for beside whoever
/// reads and writes.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Hangup(Option<Arc<OwnedFd>>);

impl Hangup {
    /// Of this socket.
    pub(super) fn of(stream: &UnixStream) -> Self {
        // Without it a user is missed when something is read from them or written to them.
        Self(stream.as_fd().try_clone_to_owned().ok().map(Arc::new))
    }

    /// Waits until the user's end is closed.
    pub(super) async fn wait(self) {
        let Some(stream) = self.0.and_then(|socket| stream(&socket).ok()) else {
            return pending().await;
        };
        loop {
            // Wakes when something new has come, which is not read here, or the end has.
            match stream.ready(Interest::READABLE).await {
                Ok(ready) if ready.is_read_closed() => return,
                Ok(_) => {
                    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    // To be told only of what comes after this.
                    let _ = stream.try_io(Interest::READABLE, nothing);
                }
                Err(_) => return pending().await,
            }
        }
    }
}

fn stream(socket: &OwnedFd) -> io::Result<UnixStream> {
    UnixStream::from_std(socket.try_clone()?.into())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_end_is_seen_before_what_was_sent_is_read() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let wait = Hangup::of(&near).wait();
        tokio::pin!(wait);
        far.write_all(&[7; 1_000]).await.unwrap();
        let gone = tokio::select! {
            biased;
            () = &mut wait => true,
            () = tokio::task::yield_now() => false,
        };
        assert!(!gone);
        far.write_all(&[7; 1_000]).await.unwrap();
        drop(far);
        wait.await;
    }
}

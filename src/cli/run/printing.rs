//! A task's output on its way to the user, which may be a pipe that nobody empties.

use std::io;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::cli::logs::write;

/// Pieces of output that wait for whoever reads them. One more, and the daemon is read no further.
const WAITING_MAX: usize = 2;

/// Where a piece goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// How printing ended before it was done.
#[derive(Debug)]
pub(super) enum Stop {
    /// Whoever read it has enough.
    Closed,
    /// It cannot be written.
    Failed(io::Error),
}

/// Prints on a thread of its own, begun with the first piece: a write may never return, and Ctrl-C
/// has to work all the same.
#[derive(Debug, Default)]
pub(super) struct Printing {
    pieces: Option<mpsc::Sender<(Stream, Bytes)>>,
    end: Option<oneshot::Receiver<Result<(), Stop>>>,
    next: Option<(Stream, Bytes)>,
}

impl Printing {
    /// Hands over a piece; wait for [`Self::next`] before the next one.
    pub(super) fn push(&mut self, stream: Stream, bytes: Bytes) {
        debug_assert!(self.next.is_none(), "one piece at a time");
        self.next = Some((stream, bytes));
        if self.pieces.is_none() {
            let (send, receive) = mpsc::channel(WAITING_MAX);
            let (ended, end) = oneshot::channel();
            // Nobody may be there to hear it.
            std::thread::spawn(move || drop(ended.send(print(receive))));
            (self.pieces, self.end) = (Some(send), Some(end));
        }
    }

    /// Whether a piece has been handed over and not been taken.
    pub(super) fn is_full(&self) -> bool {
        self.next.is_some()
    }

    /// Waits until the thread has taken the piece, or, if there is none, until all is printed, and
    /// says whether it is. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<bool, Stop> {
        if let (Some(_), Some(pieces)) = (&self.next, &self.pieces)
            && let Ok(permit) = pieces.reserve().await
        {
            if let Some(piece) = self.next.take() {
                permit.send(piece);
            }
            return Ok(false);
        }
        self.pieces = None;
        let Some(end) = &mut self.end else { return Ok(true) };
        let end = end.await;
        self.end = None;
        end.unwrap_or_else(|_| Err(Stop::Failed(io::Error::other("the printing thread is gone"))))
            .map(|()| true)
    }
}

fn print(mut pieces: mpsc::Receiver<(Stream, Bytes)>) -> Result<(), Stop> {
    while let Some((stream, bytes)) = pieces.blocking_recv() {
        let closed = match stream {
            Stream::Stdout => write(rustix::stdio::stdout(), &bytes),
            Stream::Stderr => write(rustix::stdio::stderr(), &bytes),
        };
        match closed {
            // Nobody is lost who does not read errors.
            Ok(closed) if closed && stream == Stream::Stdout => return Err(Stop::Closed),
            Ok(_) => {}
            Err(error) => return Err(Stop::Failed(error)),
        }
    }
    Ok(())
}

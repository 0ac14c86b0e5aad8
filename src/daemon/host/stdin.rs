//! A task's standard input on the node: bounded, addressed by offset, fed by one tokio task.
//!
//! It belongs to the task and not to a stream, so that what arrived before a connection was lost
//! is neither lost nor written twice.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, watch};

use crate::daemon::stream::StreamError;
use crate::wire::task::STDIN_WINDOW;

/// Bytes that may lie here: one window of the home, and one more of a home that came back.
const BUFFER_MAX: u64 = 2 * STDIN_WINDOW;

/// Input on its way into the task's pipe.
#[derive(Debug)]
pub(crate) struct Stdin {
    state: Mutex<State>,
    changed: Notify,
    taken: watch::Receiver<u64>,
}

#[derive(Debug, Default)]
struct State {
    buffer: BytesMut,
    received: u64,
    ended: bool,
    /// Nobody takes any more.
    closed: bool,
}

impl Stdin {
    /// The input of a task whose keeper has received so much already, and tells with `taken` what
    /// the task's pipe has taken.
    pub(crate) fn new(received: u64, taken: watch::Receiver<u64>) -> Self {
        let state = State { received, ..State::default() };
        Self { state: Mutex::new(state), changed: Notify::new(), taken }
    }

    /// How much has arrived here.
    pub(super) fn received(&self) -> u64 {
        self.lock().received
    }

    /// How much the task's pipe has taken, and news of it.
    pub(super) fn taken(&self) -> watch::Receiver<u64> {
        self.taken.clone()
    }

    /// Accepts input that begins at `offset`; what arrived before is skipped.
    ///
    /// # Errors
    /// If there is a hole, input after its end, or more than the window allows.
    pub(super) fn push(&self, offset: u64, bytes: &Bytes) -> Result<(), StreamError> {
        let mut state = self.lock();
        if state.closed {
            return Ok(());
        }
        let Some(known) = state.received.checked_sub(offset) else {
            return Err(StreamError::Protocol("input with a hole in it"));
        };
        let Some(new) = usize::try_from(known).ok().and_then(|known| bytes.get(known..)) else {
            return Ok(());
        };
        if new.is_empty() {
            return Ok(());
        }
        if state.ended {
            return Err(StreamError::Protocol("input after its end"));
        }
        if (state.buffer.len() + new.len()) as u64 > BUFFER_MAX {
            return Err(StreamError::Protocol("more input than the window allows"));
        }
        state.buffer.extend_from_slice(new);
        state.received += new.len() as u64;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// No more input will come.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_one();
    }

    /// The task is gone: what is here and what still comes goes nowhere.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.buffer = BytesMut::new();
        drop(state);
        self.changed.notify_one();
    }

    /// The next bytes for the pipe, `None` at the end. For one caller.
    pub(crate) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut state = self.lock();
                if !state.buffer.is_empty() {
                    return Some(state.buffer.split().freeze());
                }
                if state.ended || state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_that_comes_twice_is_written_once() {
        let stdin = Stdin::new(0, watch::channel(0).1);
        stdin.push(0, &Bytes::from_static(b"abc")).unwrap();
        stdin.push(1, &Bytes::from_static(b"bcde")).unwrap();
        stdin.push(0, &Bytes::from_static(b"ab")).unwrap();
        assert_eq!(stdin.next().await.unwrap(), "abcde");
        stdin.end();
        assert_eq!(stdin.next().await, None);
        assert!(stdin.push(5, &Bytes::from_static(b"x")).is_err());
    }

    /// Whoever feeds a task that has ended would wait for input for ever.
    #[tokio::test]
    async fn a_task_that_is_gone_wants_no_input() {
        let stdin = Stdin::new(0, watch::channel(0).1);
        stdin.push(0, &Bytes::from_static(b"abc")).unwrap();
        stdin.close();
        assert_eq!(stdin.next().await, None);
        // A user who types on does no wrong.
        stdin.push(3, &Bytes::from_static(b"def")).unwrap();
        assert_eq!(stdin.next().await, None);
    }

    #[test]
    fn a_hole_and_a_flood_are_refused() {
        let stdin = Stdin::new(0, watch::channel(0).1);
        assert!(stdin.push(1, &Bytes::from_static(b"x")).is_err());
        stdin.push(0, &Bytes::from(vec![0; BUFFER_MAX as usize])).unwrap();
        assert!(stdin.push(BUFFER_MAX, &Bytes::from_static(b"x")).is_err());
    }
}

//! The user's input on its way to a task: what was read, what the node has taken, and what must be
//! sent again when a stream was lost.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::wire::task::STDIN_WINDOW;

/// Input that the node has not taken yet, and where more comes from.
#[derive(Debug)]
pub(super) struct Input {
    /// The user's input; `None` once it has ended, or if there never was any.
    source: Option<mpsc::Receiver<Bytes>>,
    /// Read but not taken: begins at `taken`, ends at `read`.
    pending: VecDeque<Bytes>,
    taken: u64,
    read: u64,
}

impl Input {
    pub(super) fn new(source: Option<mpsc::Receiver<Bytes>>) -> Self {
        Self { source, pending: VecDeque::new(), taken: 0, read: 0 }
    }

    /// How much input the node has taken, as far as it has said.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether all input has been read, and it ends at `cursor`. After a restart of this daemon the
    /// node has more than was read here.
    pub(super) fn ends_at(&self, cursor: u64) -> bool {
        self.source.is_none() && cursor >= self.read
    }

    /// The node has taken everything before `upto`. What it cannot have taken is ignored.
    pub(super) fn take(&mut self, upto: u64) {
        if upto > self.read {
            return;
        }
        while let Some(front) = self.pending.front_mut() {
            let rest = upto.saturating_sub(self.taken);
            if rest == 0 {
                break;
            }
            if rest >= front.len() as u64 {
                self.taken += front.len() as u64;
                self.pending.pop_front();
            } else {
                // `rest` is smaller than a length in memory.
                drop(front.split_to(rest as usize));
                self.taken = upto;
            }
        }
    }

    /// The bytes from `cursor` on that have been read already: what a new stream must be sent
    /// again.
    pub(super) fn again(&self, cursor: u64) -> Option<Bytes> {
        // A hole cannot be filled any more. No honest node has one: it has received what it took.
        cursor.checked_sub(self.taken)?;
        let mut at = self.taken;
        for piece in &self.pending {
            let end = at + piece.len() as u64;
            if cursor < end {
                return Some(piece.slice((cursor - at) as usize..));
            }
            at = end;
        }
        None
    }

    /// Reads more. Waits for ever when the window is full or the input has ended: somebody else
    /// (the node's credit, the end of the task) goes on. Cancel safe.
    pub(super) async fn more(&mut self) {
        match &mut self.source {
            Some(source) if self.read - self.taken < STDIN_WINDOW => match source.recv().await {
                Some(bytes) => {
                    self.read += bytes.len() as u64;
                    self.pending.push_back(bytes);
                }
                None => self.source = None,
            },
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_not_taken_is_sent_again_from_any_offset() {
        let (send, receive) = mpsc::channel(4);
        let mut input = Input::new(Some(receive));
        send.send(Bytes::from_static(b"abcd")).await.unwrap();
        send.send(Bytes::from_static(b"efg")).await.unwrap();
        input.more().await;
        input.more().await;
        assert_eq!(input.again(0).unwrap(), "abcd");
        assert_eq!(input.again(2).unwrap(), "cd");
        input.take(5);
        assert_eq!(input.taken(), 5);
        assert_eq!(input.again(5).unwrap(), "fg");
        assert_eq!(input.again(7), None);
        // A node that claims to have taken what was never sent is not believed.
        input.take(100);
        assert_eq!(input.taken(), 5);
        drop(send);
        input.more().await;
        assert!(input.ends_at(7));
        assert_eq!(input.again(4), None);
    }

    /// The input of a job of before this start ended with its user; the task waited for its end.
    #[test]
    fn input_that_was_read_by_an_earlier_daemon_has_ended() {
        let input = Input::new(None);
        assert_eq!(input.again(300), None);
        assert!(input.ends_at(300));
    }

    #[tokio::test]
    async fn no_more_than_the_window_is_read_ahead() {
        let (send, receive) = mpsc::channel(4);
        let mut input = Input::new(Some(receive));
        send.send(Bytes::from(vec![0; STDIN_WINDOW as usize])).await.unwrap();
        send.send(Bytes::from_static(b"x")).await.unwrap();
        input.more().await;
        let blocked = tokio::select! {
            biased;
            () = input.more() => false,
            () = std::future::ready(()) => true,
        };
        assert!(blocked);
        input.take(1);
        input.more().await;
        assert_eq!(input.again(STDIN_WINDOW).unwrap(), "x");
    }
}

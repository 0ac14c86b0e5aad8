//! What a daemon and a keeper say to each other: length-prefixed CBOR on a Unix stream.
//!
//! Both are the same program, though not always the same version: a daemon that was updated finds
//! the keepers of the old one. New meanings need new variants at the end.

use std::io;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::core::task::{Command, Outcome};

/// Bytes of one message: a command with its arguments and environment is the largest.
pub(super) const MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// Bytes of input that may be on their way to the task's pipe.
pub(super) const STDIN_MAX: u64 = 256 * 1024;

/// Daemon to keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToKeeper {
    /// The first message to a new keeper: start this.
    Start(Box<Start>),
    /// Input.
    Stdin(serde_bytes::ByteBuf),
    /// No more input.
    StdinEof,
    /// End the task: SIGTERM, and after so many milliseconds SIGKILL.
    Stop(u64),
}

/// What a keeper starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    /// The task's folder.
    pub(super) folder: serde_bytes::ByteBuf,
    /// The command; its own variables are in `env` already.
    pub(super) command: Command,
    /// The whole environment.
    pub(super) env: Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    /// Bytes kept of each output.
    pub(super) output_max: u64,
    /// Milliseconds between SIGTERM and SIGKILL when the command has ended and left others behind.
    pub(super) grace_ms: u64,
}

/// Keeper to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToDaemon {
    /// The first message to a daemon that comes back.
    Hello {
        /// Bytes of input received and taken.
        stdin: (u64, u64),
        /// Whether the command has ended.
        ended: bool,
    },
    /// The command runs.
    Started,
    /// The command could not be started.
    StartFailed {
        /// Why, in a sentence for the user.
        why: String,
        /// Whether another node might do better.
        elsewhere: bool,
    },
    /// So much output is there.
    Totals(Totals),
    /// The task's pipe has taken so much input in all.
    StdinTaken(u64),
    /// The command has ended; processes of its may be left.
    CommandEnded,
    /// No process is left and all output is in the files.
    Gone(Outcome),
    /// SIGKILL does not end these.
    Stuck(String),
}

/// Bytes of each output so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Standard output.
    pub stdout: u64,
    /// Standard error.
    pub stderr: u64,
}

/// A message with its length before it.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Writing to a vector cannot fail, and no message has a `Serialize` that refuses.
    #[expect(clippy::expect_used, reason = "see above")]
    ciborium::into_writer(message, &mut bytes).expect("a message can be encoded");
    let len = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Takes the first whole message out of what was received.
pub(super) fn take<M: DeserializeOwned>(received: &mut Vec<u8>) -> io::Result<Option<M>> {
    let Some(head) = received.first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_be_bytes(*head) as usize;
    if len > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    if received.len() < 4 + len {
        return Ok(None);
    }
    let message = ciborium::from_reader(&received[4..4 + len])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    received.drain(..4 + len);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_whole_and_in_order() {
        let mut received = frame(&ToKeeper::Stop(5));
        received.extend(frame(&ToKeeper::StdinEof));
        let last = received.pop().unwrap();
        assert_eq!(take::<ToKeeper>(&mut received).unwrap(), Some(ToKeeper::Stop(5)));
        assert_eq!(take::<ToKeeper>(&mut received).unwrap(), None);
        received.push(last);
        assert_eq!(take::<ToKeeper>(&mut received).unwrap(), Some(ToKeeper::StdinEof));
        assert!(received.is_empty());
    }

    #[test]
    fn a_length_from_a_lunatic_is_refused() {
        assert!(take::<ToKeeper>(&mut vec![0xff; 8]).is_err());
    }
}

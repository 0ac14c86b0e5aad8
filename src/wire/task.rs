//! The bytes of a task stream: a home and a node about one task.
//!
//! One stream is opened for one purpose, which its first frame names: [`ToNode::Open`] presents a
//! grant with the task, [`ToNode::Attach`] comes back to a task after a lost connection,
//! [`ToNode::View`] only reads output. A frame is one kind byte and a body. Control messages are
//! CBOR; output and input are raw bytes behind a fixed head, so that a stream's bytes are copied
//! neither into nor out of an encoding.
//!
//! Everything that can be lost with a connection has an offset: output, so that its reader resumes;
//! input, so that its writer does. The node tells with [`ToHome::StdinTaken`] how much input the
//! task's pipe has taken, and the home never has more than [`STDIN_WINDOW`] under way.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::core::grant::{Grant, Refusal};
use crate::core::signed::Signed;
use crate::core::task::{Command, Outcome, TaskId};
use crate::core::time::WallTime;

/// Bytes of output or input in one frame.
pub const DATA_MAX: usize = 64 * 1024;

/// Bytes of one control message: a command's arguments and environment are its largest part, and
/// the kernel's own limit for those is 2 MiB by default.
pub const CONTROL_MAX: usize = 3 * 1024 * 1024;

/// Bytes of one frame.
pub const FRAME_MAX: usize = CONTROL_MAX + 1;

/// Bytes of input that may be under way, kept by the home until the node has taken them.
pub const STDIN_WINDOW: u64 = 256 * 1024;

/// Which of a task's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Byte offsets into a task's outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// The next byte wanted of standard output.
    pub stdout: u64,
    /// The next byte wanted of standard error.
    pub stderr: u64,
}

impl Offsets {
    /// The offset into this output.
    pub fn of(&mut self, output: Output) -> &mut u64 {
        match output {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        }
    }
}

/// What a home says to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// The outcome has been recorded: the node need not keep it for the home any more.
    Acknowledge,
    /// First frame: back to a task that was accepted, or may have been.
    Attach {
        /// The task.
        task: TaskId,
        /// From where its output is wanted; `None`: only its fate.
        follow: Option<Offsets>,
    },
    /// First frame: lease these GPUs and run this.
    Open {
        /// What the controller granted.
        grant: Signed<Grant>,
        /// The job's owner.
        owner: String,
        /// The job's name.
        name: String,
        /// Name of the home node, for the task's environment.
        home_name: String,
        /// What to run.
        command: Command,
        /// Whether output is wanted on this stream, from its beginning.
        follow: bool,
    },
    /// No more input.
    StdinEof,
    /// End the task: SIGTERM to its process group, after the node's grace SIGKILL to all of it.
    Stop {
        /// Without grace.
        now: bool,
    },
    /// First frame: only output.
    View {
        /// The task.
        task: TaskId,
        /// Standard output from this offset; `None`: not wanted.
        stdout: Option<u64>,
        /// Standard error from this offset; `None`: not wanted.
        stderr: Option<u64>,
        /// Whether to go on until the task has ended.
        follow: bool,
    },
}

/// What a node says to a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHome {
    /// The GPUs are leased and the task's process has been started.
    Accepted {
        /// When, for people.
        since: WallTime,
    },
    /// Here is the task again.
    Attached {
        /// When it was started, for people.
        since: WallTime,
        /// Bytes of input that the task's pipe has taken.
        stdin_taken: u64,
        /// Bytes of input that have arrived at the node.
        stdin_received: u64,
    },
    /// The task has ended, none of its processes is left, and all output wanted has been sent.
    Ended {
        /// How.
        outcome: Outcome,
        /// When, for people.
        at: WallTime,
    },
    /// The task has not ended, and all output there is so far has been sent.
    Enough,
    /// Output that was wanted is not kept any more, or never was: the caps of the node.
    Gap {
        /// Of which output.
        output: Output,
        /// First byte that is missing.
        from: u64,
        /// First byte that is not.
        to: u64,
    },
    /// The grant was refused.
    Refused(Refusal),
    /// The task's pipe has taken this much input, counted from its start.
    StdinTaken(u64),
    /// No such task here: it was never accepted, or is long forgotten.
    Unknown,
}

/// One frame of either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<M> {
    /// A control message.
    Control(M),
    /// Bytes of standard input, or of an output.
    Data {
        /// Which; `None` is input.
        output: Option<Output>,
        /// Where in the stream they begin.
        offset: u64,
        /// The bytes, at most [`DATA_MAX`].
        bytes: Bytes,
    },
}

/// Why bytes are not a frame. Only a faulty or lying peer causes it; the stream is closed.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The control message is not CBOR of a message we know.
    #[error("a control message cannot be read")]
    Control(#[from] ciborium::de::Error<std::io::Error>),
    /// The frame's kind is unknown.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// The frame ends before its head does, or carries more data than allowed.
    #[error("frame of {0} bytes has a wrong length for its kind")]
    Length(usize),
}

const KIND_CONTROL: u8 = 0;
const KIND_STDIN: u8 = 1;
const KIND_STDOUT: u8 = 2;
const KIND_STDERR: u8 = 3;

/// The kind byte and the offset before the bytes of a data frame.
pub const DATA_HEAD: usize = 9;

/// A control message as a frame's body.
pub fn encode_control(message: &impl Serialize) -> Bytes {
    let mut out = BytesMut::with_capacity(256).writer();
    out.get_mut().put_u8(KIND_CONTROL);
    // Writing to memory cannot fail, and no message has a `Serialize` that refuses.
    #[expect(clippy::expect_used, reason = "see above")]
    ciborium::into_writer(message, &mut out).expect("a message can be encoded");
    out.into_inner().freeze()
}

/// The head of a data frame; the bytes themselves follow it, uncopied.
pub fn data_head(output: Option<Output>, offset: u64) -> [u8; DATA_HEAD] {
    let mut head = [0; DATA_HEAD];
    head[0] = match output {
        None => KIND_STDIN,
        Some(Output::Stdout) => KIND_STDOUT,
        Some(Output::Stderr) => KIND_STDERR,
    };
    head[1..].copy_from_slice(&offset.to_be_bytes());
    head
}

/// Reads a frame's body.
///
/// # Errors
/// If the kind is unknown, the length does not fit the kind, or the message cannot be read.
pub fn decode<M: for<'de> Deserialize<'de>>(mut body: Bytes) -> Result<Frame<M>, FrameError> {
    let len = body.len();
    if body.is_empty() {
        return Err(FrameError::Length(len));
    }
    let output = match body.get_u8() {
        KIND_CONTROL => return Ok(Frame::Control(ciborium::from_reader(body.as_ref())?)),
        KIND_STDIN => None,
        KIND_STDOUT => Some(Output::Stdout),
        KIND_STDERR => Some(Output::Stderr),
        other => return Err(FrameError::Kind(other)),
    };
    if body.len() < DATA_HEAD - 1 || len - DATA_HEAD > DATA_MAX {
        return Err(FrameError::Length(len));
    }
    Ok(Frame::Data { output, offset: body.get_u64(), bytes: body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_control_message_and_data_survive() {
        let stop = ToNode::Stop { now: true };
        assert_eq!(decode(encode_control(&stop)).unwrap(), Frame::Control(stop));
        let mut body = data_head(Some(Output::Stderr), 7).to_vec();
        body.extend(b"\xff\x00x");
        let frame: Frame<ToHome> = decode(body.into()).unwrap();
        let bytes = Bytes::from_static(b"\xff\x00x");
        assert_eq!(frame, Frame::Data { output: Some(Output::Stderr), offset: 7, bytes });
    }

    #[test]
    fn short_unknown_and_oversized_frames_are_refused() {
        assert!(decode::<ToHome>(Bytes::new()).is_err());
        assert!(decode::<ToHome>(Bytes::from_static(&[9, 0])).is_err());
        assert!(decode::<ToHome>(Bytes::from_static(&[2, 0, 0])).is_err());
        let mut body = data_head(None, 0).to_vec();
        body.resize(DATA_HEAD + DATA_MAX + 1, 0);
        assert!(decode::<ToHome>(body.into()).is_err());
    }

    proptest! {
        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<ToNode>(junk.clone().into());
            let _ = decode::<ToHome>(junk.into());
        }
    }
}

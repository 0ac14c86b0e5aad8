//! The attached stream: what a watching user's command line and its daemon say to each other.
//!
//! It follows an HTTP upgrade to [`UPGRADE`]. Each frame is one kind byte, four bytes of length,
//! big endian, and as many bytes. Flow control is the socket's: who does not read is not sent more.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::JobView;

/// What the connection is upgraded to.
pub const UPGRADE: &str = "gpuvine-attach/1";

/// Bytes of one frame.
pub const FRAME_MAX: usize = 256 * 1024;

/// Bytes before a frame's content.
pub const HEAD: usize = 5;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To the user: the job has ended, and all its output has been sent.
    Ended(Box<JobView>),
    /// To the user: these bytes of an output are not kept.
    Gap(Gap),
    /// To the user: the job has changed.
    Job(Box<JobView>),
    /// To the user.
    Stderr(Bytes),
    /// To the daemon.
    Stdin(Bytes),
    /// To the daemon: no more input.
    StdinEof,
    /// To the user.
    Stdout(Bytes),
    /// To the user: the rest of the output cannot be had now, and why.
    Unread(String),
}

/// Bytes that are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// `stdout` or `stderr`.
    pub output: String,
    /// The first that is missing.
    pub from: u64,
    /// The first that is not.
    pub to: u64,
}

/// Why bytes are not a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than allowed.
    #[error("a frame of {0} bytes, {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// Of a kind that is not known.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// Its content is not what its kind says.
    #[error("a frame cannot be read")]
    Content(#[from] serde_json::Error),
}

impl Frame {
    /// The head and the content of the frame's bytes.
    pub fn encode(&self) -> ([u8; HEAD], Bytes) {
        let json = |value: serde_json::Result<Vec<u8>>| Bytes::from(value.unwrap_or_default());
        let (kind, content) = match self {
            Self::Stdin(bytes) => (0, bytes.clone()),
            Self::StdinEof => (1, Bytes::new()),
            Self::Stdout(bytes) => (16, bytes.clone()),
            Self::Stderr(bytes) => (17, bytes.clone()),
            Self::Gap(gap) => (18, json(serde_json::to_vec(gap))),
            Self::Job(job) => (19, json(serde_json::to_vec(job))),
            Self::Ended(job) => (20, json(serde_json::to_vec(job))),
            Self::Unread(why) => (21, json(serde_json::to_vec(why))),
        };
        let mut head = [kind, 0, 0, 0, 0];
        // No frame is made that is longer than FRAME_MAX.
        head[1..].copy_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
        (head, content)
    }

    /// The kind and the length of the content that a head announces.
    ///
    /// # Errors
    /// If the length is beyond the limit.
    pub fn head(head: &[u8; HEAD]) -> Result<(u8, usize), FrameError> {
        let [kind, len @ ..] = *head;
        let len = u32::from_be_bytes(len) as usize;
        if len > FRAME_MAX { Err(FrameError::TooLong(len)) } else { Ok((kind, len)) }
    }

    /// The frame of a kind with a content.
    ///
    /// # Errors
    /// If the kind is unknown or the content is not of that kind.
    pub fn decode(kind: u8, content: Bytes) -> Result<Self, FrameError> {
        Ok(match kind {
            0 => Self::Stdin(content),
            1 => Self::StdinEof,
            16 => Self::Stdout(content),
            17 => Self::Stderr(content),
            18 => Self::Gap(serde_json::from_slice(&content)?),
            19 => Self::Job(serde_json::from_slice(&content)?),
            20 => Self::Ended(serde_json::from_slice(&content)?),
            21 => Self::Unread(serde_json::from_slice(&content)?),
            other => return Err(FrameError::Kind(other)),
        })
    }
}

#[cfg(feature = "daemon")]
mod io {
    use bytes::{Buf as _, BytesMut};
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
    use tokio_util::codec::{Decoder, FramedRead};

    use super::{Frame, HEAD};

    /// Bytes that are read at once: as many as most frames of output have.
    const READ_AHEAD: usize = HEAD + 64 * 1024;

    /// Tells frames apart.
    #[derive(Debug)]
    pub struct Frames;

    impl Decoder for Frames {
        type Item = Frame;
        type Error = std::io::Error;

        fn decode(&mut self, received: &mut BytesMut) -> std::io::Result<Option<Frame>> {
            let Some(head) = received.first_chunk::<HEAD>() else { return Ok(None) };
            let (kind, len) = Frame::head(head).map_err(std::io::Error::other)?;
            if let Some(missing) = (HEAD + len).checked_sub(received.len()).filter(|len| *len > 0) {
                received.reserve(missing);
                return Ok(None);
            }
            received.advance(HEAD);
            let content = received.split_to(len).freeze();
            Frame::decode(kind, content).map(Some).map_err(std::io::Error::other)
        }
    }

    /// The frames of a stream; an error if it ends within one, or what comes is none.
    pub fn frames<S: AsyncRead>(stream: S) -> FramedRead<S, Frames> {
        FramedRead::with_capacity(stream, Frames, READ_AHEAD)
    }

    /// Writes a frame and lets it go.
    ///
    /// # Errors
    /// If the stream fails.
    pub async fn write(
        stream: &mut (impl AsyncWrite + Unpin),
        frame: &Frame,
    ) -> std::io::Result<()> {
        let (head, content) = frame.encode();
        stream.write_all_buf(&mut head.chain(content)).await?;
        stream.flush().await
    }
}

#[cfg(feature = "daemon")]
pub use self::io::{Frames, frames, write};

#[cfg(test)]
mod tests;

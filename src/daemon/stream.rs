//! Frames on a task stream, whatever carries it: a libp2p stream, or a pipe to this node itself.

use std::io;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use crate::wire::task::{self, DATA_HEAD, DATA_MAX, FRAME_MAX, Frame, FrameError, Output};

/// A task stream.
pub(crate) type TaskStream = Box<dyn Duplex>;

/// Something that can be read and written.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A pipe between a home and a node that are one daemon: what is written to one end is read from
/// the other.
pub(crate) fn pipe() -> (TaskStream, TaskStream) {
    let (near, far) = tokio::io::duplex(4 * DATA_MAX);
    (Box::new(near), Box::new(far))
}

/// Splits a stream into its two directions.
pub(crate) fn split(stream: TaskStream) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    let codec = LengthDelimitedCodec::builder().max_frame_length(FRAME_MAX).new_codec();
    (Reader(FramedRead::new(read, codec)), Writer { stream: write, frame: BytesMut::new() })
}

/// Why a task stream is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The other side closed it, or is gone.
    #[error("the stream was closed")]
    Closed,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What came is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other side broke the protocol.
    #[error("the other side broke the protocol: {0}")]
    Protocol(&'static str),
}

/// The incoming direction.
#[derive(Debug)]
pub(crate) struct Reader(FramedRead<ReadHalf<TaskStream>, LengthDelimitedCodec>);

impl Reader {
    /// The next frame. Cancel safe.
    pub(crate) async fn next<M: for<'de> Deserialize<'de>>(
        &mut self,
    ) -> Result<Frame<M>, StreamError> {
        let body = self.0.next().await.ok_or(StreamError::Closed)??;
        Ok(task::decode(body.freeze())?)
    }
}

/// The outgoing direction. Each frame is written in one piece: what carries it makes a packet of
/// each piece.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: WriteHalf<TaskStream>,
    frame: BytesMut,
}

/// Room for what comes before the bytes of a data frame.
pub(crate) const HEADROOM: usize = PREFIX + DATA_HEAD;

/// Bytes of the length before a frame.
const PREFIX: usize = 4;

/// Bytes of an output that are sent at once: with their head they fill four of the muxer's frames.
pub(crate) const PIECE: usize = DATA_MAX - HEADROOM;

impl Writer {
    /// Writes a control message and lets it go.
    pub(crate) async fn control(&mut self, message: &impl Serialize) -> Result<(), StreamError> {
        self.write(&task::encode_control(message), &[]).await
    }

    /// Writes bytes of the input and lets them go.
    pub(crate) async fn input(&mut self, offset: u64, bytes: &Bytes) -> Result<(), StreamError> {
        self.write(&task::data_head(None, offset), bytes).await
    }

    /// Writes bytes of an output; they are on their way for certain after [`Self::flush`]. They
    /// begin at [`HEADROOM`] in the buffer; what is before is for their head.
    pub(crate) async fn output(
        &mut self,
        output: Output,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), StreamError> {
        let len = prefix(buffer.len().saturating_sub(PREFIX));
        let head = task::data_head(Some(output), offset);
        buffer[..PREFIX].copy_from_slice(&len);
        buffer[PREFIX..HEADROOM].copy_from_slice(&head);
        Ok(self.stream.write_all(buffer).await?)
    }

    /// Lets go what was written.
    pub(crate) async fn flush(&mut self) -> Result<(), StreamError> {
        Ok(self.stream.flush().await?)
    }

    async fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), StreamError> {
        self.frame.clear();
        self.frame.extend_from_slice(&prefix(head.len() + body.len()));
        self.frame.extend_from_slice(head);
        self.frame.extend_from_slice(body);
        self.stream.write_all(&self.frame).await?;
        Ok(self.stream.flush().await?)
    }

    /// Says that nothing more will come.
    pub(crate) async fn close(mut self) {
        // The other side may be gone already, and then there is nobody to tell.
        let _ = self.stream.shutdown().await;
    }
}

/// The length before a frame. None is longer than [`FRAME_MAX`], which is far below 4 GiB.
fn prefix(len: usize) -> [u8; PREFIX] {
    u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()
}

impl std::fmt::Debug for dyn Duplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Duplex")
    }
}

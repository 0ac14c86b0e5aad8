//! Frames on a task stream, whatever carries it: a libp2p stream, or a pipe to this node itself.

use std::io;

use bytes::Bytes;
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
    (Reader(FramedRead::new(read, codec)), Writer(write))
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

/// The outgoing direction.
#[derive(Debug)]
pub(crate) struct Writer(WriteHalf<TaskStream>);

impl Writer {
    /// Writes a control message and lets it go.
    pub(crate) async fn control(&mut self, message: &impl Serialize) -> Result<(), StreamError> {
        let body = task::encode_control(message);
        self.frame(body.len(), &[], &body).await
    }

    /// Writes bytes of an output, or of the input, and lets them go.
    pub(crate) async fn data(
        &mut self,
        output: Option<Output>,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<(), StreamError> {
        let head = task::data_head(output, offset);
        self.frame(DATA_HEAD + bytes.len(), &head, bytes).await
    }

    async fn frame(&mut self, len: usize, head: &[u8], body: &[u8]) -> Result<(), StreamError> {
        let mut start = [0; 4 + DATA_HEAD];
        // No frame is longer than FRAME_MAX, which is far below 4 GiB.
        let prefix = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        start[..4].copy_from_slice(&prefix);
        start[4..4 + head.len()].copy_from_slice(head);
        self.0.write_all(&start[..4 + head.len()]).await?;
        self.0.write_all(body).await?;
        self.0.flush().await?;
        Ok(())
    }

    /// Says that nothing more will come.
    pub(crate) async fn close(mut self) {
        // The other side may be gone already, and then there is nobody to tell.
        let _ = self.0.shutdown().await;
    }
}

impl std::fmt::Debug for dyn Duplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Duplex")
    }
}

//! Length-prefixed frames on a stream: four bytes, big endian, and as many bytes as they say.

use std::io;

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads one frame of at most `max` bytes. A longer one is an error before anything is allocated.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let len = u32::from_be_bytes(head) as usize;
    if len > max {
        let why = format!("a frame of {len} bytes, {max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// Writes one frame; it is on its way only after a flush.
pub(super) async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    body: &[u8],
) -> io::Result<()> {
    let len = u32::try_from(body.len())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    // In one piece: whatever carries it makes a packet of its own of each.
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).await
}

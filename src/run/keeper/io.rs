//! A keeper's pipes and its socket: never blocking, always bounded.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use serde::Serialize;

use super::WRITE_MAX;
use crate::core::time::Duration;
use crate::run::output::OutputWriter;
use crate::run::protocol::{MESSAGE_MAX, Start, ToKeeper, frame, take};

/// Reads of one output before the other has its turn.
const READS_MAX: usize = 16;

/// Bytes that may wait for a daemon that does not read. One that is further behind is cut off, and
/// learns the rest when it comes back.
const UNSENT_MAX: usize = 64 * 1024;

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) fn nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// From one output of the task into its file.
pub(super) struct Drain {
    pipe: Option<OwnedFd>,
    writer: OutputWriter,
    buffer: Vec<u8>,
}

impl Drain {
    pub(super) fn new(pipe: OwnedFd, writer: OutputWriter) -> Self {
        Self { pipe: Some(pipe), writer, buffer: vec![0; WRITE_MAX] }
    }

    /// Reads what there is.
    pub(super) fn read(&mut self) {
        for _ in 0..READS_MAX {
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe, &mut self.buffer[..]) {
                Ok(0) => self.pipe = None,
                Ok(len) => self.writer.append(&self.buffer[..len]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.writer.total()
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        Some(PollFd::new(self.pipe.as_ref()?, PollFlags::IN))
    }
}

/// A daemon that may have a task.
pub(super) struct Waiting {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Waiting {
    /// A daemon whose stream blocks.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Waits for the next task; there is none any more when the daemon is gone.
    pub(super) fn next(mut self) -> io::Result<Option<(Box<Start>, Control)>> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match take(&mut self.received)? {
                Some(ToKeeper::Start(start)) => {
                    let control = Control::new(self.stream)?;
                    return Ok(Some((start, Control { received: self.received, ..control })));
                }
                // Orders that crossed the end of the last task.
                Some(_) => continue,
                None => {}
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The socket to a daemon, if one is there.
pub(super) struct Control {
    stream: Option<UnixStream>,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Control {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: Some(stream), unsent: Vec::new(), received: Vec::new() })
    }

    /// Whether there is no daemon.
    pub(super) fn is_lost(&self) -> bool {
        self.stream.is_none()
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends a message, now or when there is room.
    pub(super) fn send(&mut self, message: &impl Serialize) {
        if self.stream.is_none() {
            return;
        }
        self.unsent.extend(frame(message));
        self.write();
        if self.unsent.len() > UNSENT_MAX {
            self.lose();
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn write(&mut self) {
        while let (Some(stream), false) = (&mut self.stream, self.unsent.is_empty()) {
            match stream.write(&self.unsent) {
                Ok(len) => {
                    self.unsent.drain(..len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.lose(),
            }
        }
    }

    /// The next message, if one is there.
    pub(super) fn receive(&mut self) -> Option<ToKeeper> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match take(&mut self.received) {
                Ok(Some(message)) => return Some(message),
                Ok(None) if self.received.len() <= MESSAGE_MAX + 4 => {}
                _ => self.lose(),
            }
            let stream = self.stream.as_mut()?;
            match stream.read(&mut buffer) {
                Ok(0) => self.lose(),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.lose(),
            }
        }
    }

    /// The daemon is gone. The task is not; another daemon may come.
    fn lose(&mut self) {
        self.stream = None;
        self.unsent.clear();
        self.received.clear();
    }

    /// Sends what waits; answers the daemon if it has got all of it.
    pub(super) fn finish(self) -> Option<Waiting> {
        let mut stream = self.stream?;
        // What cannot be said is in the files.
        stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(LAST_WORDS)))
            .and_then(|()| stream.write_all(&self.unsent))
            .ok()?;
        Some(Waiting { stream, received: self.received })
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let out = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        Some(PollFd::new(self.stream.as_ref()?, PollFlags::IN | out))
    }
}

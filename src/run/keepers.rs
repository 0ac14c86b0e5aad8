//! Where a daemon gets its keepers from: those that have seen a task out, and a fork server.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::process::Command;

use super::KEEPER;

/// Keepers that wait for a task.
const SPARES_MAX: usize = 8;

/// Keepers, for tasks in one folder.
#[derive(Debug)]
pub(super) struct Keepers {
    /// Of which program.
    program: PathBuf,
    /// For people who look at the list of processes.
    root: PathBuf,
    /// The server's socket, once there is one.
    server: Mutex<Option<UnixStream>>,
    /// Keepers that wait for a task, so that no task need wait for its keeper.
    spares: Mutex<Vec<tokio::net::UnixStream>>,
}

impl Keepers {
    pub(super) fn new(program: PathBuf, root: PathBuf) -> Self {
        Self { program, root, server: Mutex::default(), spares: Mutex::default() }
    }

    /// A keeper that waits, if one does. It may have died.
    pub(super) fn take_spare(&self) -> Option<tokio::net::UnixStream> {
        lock(&self.spares).pop()
    }

    /// A keeper that has seen its task out, has said all, and may have another. One too many ends
    /// when it is dropped.
    pub(super) fn give_back(&self, keeper: tokio::net::UnixStream) {
        let mut spares = lock(&self.spares);
        if spares.len() < SPARES_MAX {
            spares.push(keeper);
        }
    }

    /// Has a keeper waiting for the next task. A failure is found again when it is needed.
    pub(super) fn prepare(&self) {
        let mut spares = lock(&self.spares);
        if spares.is_empty() {
            spares.extend(self.fork().ok());
        }
    }

    /// A new keeper. If none comes about its socket ends.
    ///
    /// # Errors
    /// If no server can be started.
    pub(super) fn fork(&self) -> io::Result<tokio::net::UnixStream> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut server = lock(&self.server);
        let passed = server.as_ref().map(|server| pass(server, &far));
        if !matches!(passed, Some(Ok(()))) {
            // There was none yet, or it was killed.
            let started = self.start()?;
            pass(&started, &far)?;
            *server = Some(started);
        }
        tokio::net::UnixStream::from_std(near)
    }

    fn start(&self) -> io::Result<UnixStream> {
        let (near, far) = UnixStream::pair()?;
        // A server that does not take any more is of no use.
        near.set_nonblocking(true)?;
        let mut server = Command::new(&self.program)
            .arg(KEEPER)
            .arg(&self.root)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(false)
            .spawn()?;
        tokio::spawn(async move {
            // Only so that it does not stay as a zombie.
            let _ = server.wait().await;
        });
        Ok(near)
    }
}

/// Gives a keeper's socket to the server.
fn pass(server: &UnixStream, socket: &UnixStream) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(server, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under the locks can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

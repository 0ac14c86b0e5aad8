//! The fork server: the process that keepers are forked from.
//!
//! To execute this program costs milliseconds, most of them for the linker and for pages that are
//! given back right after; to fork one that has just been executed and has no threads costs a tenth
//! of that. So a daemon executes one such process, sends it the socket of each keeper that it
//! wants, and the server forks. It ends with its daemon; keepers do not end with it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::unistd::{ForkResult, fork};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{WaitOptions, wait};
use signal_hook::consts::SIGCHLD;

/// Serves the daemon at standard input. Returns twice or more: with a daemon's socket in each new
/// process, which is to be a keeper, and with nothing in this one when its daemon is gone.
pub(super) fn serve() -> io::Result<Option<UnixStream>> {
    let (ended, write) = UnixStream::pair()?;
    ended.set_nonblocking(true)?;
    let handler = signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    let stdin = io::stdin();
    loop {
        let asked = wait_for(stdin.as_fd(), &ended)?;
        super::drain(&ended);
        reap();
        if !asked {
            continue;
        }
        let Some(daemon) = receive(stdin.as_fd())? else { return Ok(None) };
        // SAFETY: this process has no other thread, so that no lock is held and no memory is half
        // written at this moment; the new process may do all that this one may.
        #[expect(unsafe_code, reason = "there is no safe fork")]
        let forked = unsafe { fork() };
        match forked {
            Ok(ForkResult::Child) => {
                signal_hook::low_level::unregister(handler);
                let nothing = std::fs::File::open("/dev/null")?;
                rustix::stdio::dup2_stdin(nothing)?;
                return Ok(Some(daemon.into()));
            }
            // Its socket is closed with `daemon`: the daemon sees that there is no keeper.
            Ok(ForkResult::Parent { .. }) | Err(_) => {}
        }
    }
}

/// Waits for the daemon or the end of a keeper; whether it is the daemon.
fn wait_for(daemon: BorrowedFd<'_>, ended: &UnixStream) -> io::Result<bool> {
    let mut fds =
        [PollFd::from_borrowed_fd(daemon, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Keepers that have ended do not stay as zombies.
fn reap() {
    while let Ok(Some(_)) | Err(rustix::io::Errno::INTR) = wait(WaitOptions::NOHANG) {}
}

/// The next keeper's socket; `None` when the daemon is gone.
fn receive(daemon: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(daemon, &mut parts, &mut control, RecvFlags::empty())?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut sockets = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let socket = sockets.next().and_then(|mut sockets| sockets.next());
    let socket = socket.ok_or(io::ErrorKind::InvalidData)?;
    // Not by a flag of the call, which not every system has; nobody executes anything meanwhile.
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(Some(socket))
}

//! Standard input on its way to a task, read only as fast as it is taken.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// Bytes read at once.
const READ_MAX: usize = 32 * 1024;

/// Pieces that wait to be taken.
const PIECES_MAX: usize = 2;

/// Reads standard input on a thread of its own: a read of a terminal cannot be interrupted. One
/// that is over before it begins, as a script's often is, costs no thread.
pub(super) fn stdin() -> mpsc::Receiver<Bytes> {
    let (send, receive) = mpsc::channel(PIECES_MAX);
    if is_over() {
        return receive;
    }
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ_MAX];
        while let Some(bytes) = read(&mut buffer) {
            if send.blocking_send(bytes).is_err() {
                return;
            }
        }
    });
    receive
}

/// Whether nothing will come: it is the null device, or a pipe that nobody writes to any more and
/// that is empty.
fn is_over() -> bool {
    use rustix::fs::{FileType, fstat, stat};
    let stdin = io::stdin();
    let is_null = fstat(stdin.as_fd()).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && stat("/dev/null").is_ok_and(|null| null.st_rdev == found.st_rdev)
    });
    let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    is_null
        || poll(&mut fds, Some(&Timespec::default()))
            .is_ok_and(|_| fds[0].revents() == PollFlags::HUP)
}

/// The next piece. Nothing is the end, or that it cannot be read: both are the end for the task.
fn read(buffer: &mut [u8]) -> Option<Bytes> {
    loop {
        match io::stdin().lock().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return None,
            Ok(len) => return Some(Bytes::copy_from_slice(&buffer[..len])),
        }
    }
}

//! Standard input on its way to a task, read only as fast as it is taken.

use std::io::Read as _;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Bytes read at once.
const READ_MAX: usize = 32 * 1024;

/// Reads standard input on a thread of its own: a read of a terminal cannot be interrupted.
pub(super) fn stdin() -> mpsc::Receiver<Bytes> {
    let (send, receive) = mpsc::channel(2);
    std::thread::spawn(move || {
        let mut buffer = vec![0; READ_MAX];
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // The end, or nothing that can be read: both are the end for the task.
                Ok(0) | Err(_) => return,
                Ok(len) => {
                    if send.blocking_send(Bytes::copy_from_slice(&buffer[..len])).is_err() {
                        return;
                    }
                }
            }
        }
    });
    receive
}

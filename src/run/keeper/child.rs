//! The task's own process, and its standard input.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Group;
use super::io::{Drain, nonblocking};
use crate::run::output::{OutputWriter, Which};
use crate::run::protocol::{STDIN_MAX, Start};

/// Bytes of a pipe between the task and its keeper: what a burst may write without waiting.
const PIPE_SIZE: usize = 256 * 1024;

/// Why a task cannot be started.
pub(super) struct SpawnError {
    pub(super) why: String,
    /// Whether another node might do better.
    pub(super) elsewhere: bool,
}

/// The task's process.
pub(super) struct Child {
    pid: Group,
    outputs: Option<(Drain, Drain)>,
    stdin: Option<ChildStdin>,
    /// Input that the pipe has not taken.
    pending: VecDeque<u8>,
    received: u64,
    taken: u64,
    told: u64,
    ended: bool,
}

impl Child {
    /// Starts the command in its own process group. A command that does not exist is an outcome
    /// (127, as in a shell), not an error: the user's script may count on it.
    pub(super) fn spawn(start: &Start) -> Result<Self, SpawnError> {
        let local = |error: io::Error| SpawnError {
            why: format!("the node cannot start a task: {error}"),
            elsewhere: true,
        };
        let command = &start.command;
        let Some((program, args)) = command.args.split_first() else {
            return Err(SpawnError { why: "there is no command".into(), elsewhere: false });
        };
        let directory = command
            .chdir
            .as_ref()
            .map_or_else(|| Path::new("work"), |chdir| Path::new(OsStr::from_bytes(chdir)));
        if !fs::metadata(directory).is_ok_and(|found| found.is_dir()) {
            let why = format!("there is no directory {} on the node", directory.display());
            return Err(SpawnError { why, elsewhere: true });
        }
        let out = OutputWriter::create(Path::new("."), Which::Stdout, start.output_max);
        let err = OutputWriter::create(Path::new("."), Which::Stderr, start.output_max);
        let (out, mut err) = (out.map_err(local)?, err.map_err(local)?);
        let (out_read, out_write) = pipe().map_err(local)?;
        let (err_read, err_write) = pipe().map_err(local)?;
        let spawned = Command::new(OsStr::from_bytes(program))
            .args(args.iter().map(|arg| OsStr::from_bytes(arg)))
            .env_clear()
            .envs(start.env.iter().map(|(k, v)| (OsStr::from_bytes(k), OsStr::from_bytes(v))))
            .current_dir(directory)
            .stdin(if command.stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(out_write)
            .stderr(err_write)
            .process_group(0)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let stub = failed(program, &error, &mut err).ok_or_else(|| SpawnError {
                    why: format!("cannot start {}: {error}", String::from_utf8_lossy(program)),
                    // Arguments that are too long are so everywhere.
                    elsewhere: error.kind() != io::ErrorKind::ArgumentListTooLong,
                })?;
                stub.map_err(local)?
            }
        };
        let pid = i32::try_from(child.id()).ok().and_then(Group::from_raw);
        let pid = pid.ok_or_else(|| local(io::Error::other("a process without an id")))?;
        let stdin = child.stdin.take();
        if let Some(stdin) = &stdin {
            nonblocking(stdin.as_fd()).map_err(local)?;
        }
        Ok(Self {
            pid,
            outputs: Some((Drain::new(out_read, out), Drain::new(err_read, err))),
            stdin,
            pending: VecDeque::new(),
            received: 0,
            taken: 0,
            told: 0,
            ended: false,
        })
    }

    /// The process, and the group that it leads.
    pub(super) fn pid(&self) -> Group {
        self.pid
    }

    /// The reading ends of its outputs; once.
    pub(super) fn take_outputs(&mut self) -> io::Result<(Drain, Drain)> {
        self.outputs.take().ok_or_else(|| io::Error::other("outputs are taken once"))
    }

    /// Bytes of input received and taken.
    pub(super) fn stdin_totals(&self) -> (u64, u64) {
        (self.received, self.taken)
    }

    /// Queues input. A daemon that sends more than the window allows loses it.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        if self.stdin.is_none() {
            // Nobody reads it: it is as good as taken.
            self.taken = self.received;
        } else if self.received - self.taken <= 2 * STDIN_MAX {
            self.pending.extend(bytes);
        }
    }

    /// No more input will come.
    pub(super) fn end_stdin(&mut self) {
        self.ended = true;
    }

    /// Writes input as far as the pipe takes it.
    pub(super) fn feed(&mut self) {
        while let Some(stdin) = &mut self.stdin {
            if self.pending.is_empty() {
                if self.ended {
                    self.stdin = None;
                }
                return;
            }
            match stdin.write(self.pending.as_slices().0) {
                Ok(len) => {
                    self.pending.drain(..len);
                    self.taken += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The task does not read any more; what was meant for it goes nowhere.
                Err(_) => {
                    self.stdin = None;
                    self.pending = VecDeque::new();
                    self.taken = self.received;
                }
            }
        }
    }

    /// How much input was taken, if that is news.
    pub(super) fn news_of_stdin(&mut self) -> Option<u64> {
        (self.taken != self.told).then(|| {
            self.told = self.taken;
            self.taken
        })
    }

    /// What to wait for: room in the pipe of input, if some waits.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let stdin = self.stdin.as_ref().filter(|_| !self.pending.is_empty())?;
        Some(PollFd::new(stdin, PollFlags::OUT))
    }
}

/// A command that does not exist or may not be run ends as it would in a shell: with a word on
/// standard error, and 127 or 126. `None` for other failures.
fn failed(
    program: &[u8],
    error: &io::Error,
    stderr: &mut OutputWriter,
) -> Option<io::Result<std::process::Child>> {
    let (code, what) = match error.kind() {
        io::ErrorKind::NotFound => ("exit 127", "command not found"),
        io::ErrorKind::PermissionDenied => ("exit 126", "permission denied"),
        _ => return None,
    };
    let name = String::from_utf8_lossy(program);
    stderr.append(format!("gpuvine: {name}: {what}\n").as_bytes());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", code]).env_clear().stdin(Stdio::null()).process_group(0);
    Some(shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn())
}

/// A pipe whose reading end does not block.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(read.as_fd())?;
    // The system's default size works too, more slowly.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_SIZE);
    Ok((read, write))
}

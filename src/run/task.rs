//! The daemon's side of one keeper.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc, watch};

use super::folder::{Ending, OUTCOME, load};
use super::keepers::Keepers;
use super::output::salvage;
use super::processes::{MARK, marked, signal};
use super::protocol::{STDIN_MAX, ToDaemon, ToKeeper, Totals, frame, take};
use crate::core::task::{Outcome, TaskId};
use crate::core::time::Duration;

/// Events of one task that may wait: there are only three kinds, each at most once or twice.
const EVENTS_MAX: usize = 8;

/// Looks at `/proc` until nothing of a task is left whose keeper died.
const ROUNDS: usize = 20;

/// What has become of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command has ended; some of its processes may be left.
    CommandEnded,
    /// No process is left; the output is complete. The last event.
    Gone(Outcome),
    /// SIGKILL does not end what is left.
    Stuck(String),
}

/// Why a task was not started. Nothing of it is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct StartError {
    /// Why, in a sentence for the user.
    pub why: String,
    /// Whether another node might do better.
    pub elsewhere: bool,
}

impl StartError {
    /// A failure of this node.
    pub(super) fn here(error: impl std::fmt::Display) -> Self {
        Self { why: format!("the node cannot start a task: {error}"), elsewhere: true }
    }
}

/// A task under its keeper.
#[derive(Debug)]
pub struct Task {
    /// What it is told.
    pub control: TaskControl,
    /// Its input.
    pub input: TaskInput,
    /// What becomes of it.
    pub events: mpsc::Receiver<Event>,
    /// How much output there is.
    pub totals: watch::Receiver<Totals>,
    /// Bytes of input that its keeper had received before this daemon was there.
    pub stdin_received: u64,
}

/// Orders for a keeper.
#[derive(Clone, Debug)]
pub struct TaskControl {
    /// Gone with the task, so that what is kept of it holds no socket.
    writer: Arc<Mutex<Option<Orders>>>,
}

/// Where a keeper's orders are written.
#[derive(Debug)]
struct Orders {
    writer: OwnedWriteHalf,
    /// Whether one was begun and not finished: whoever wrote it has gone away.
    torn: bool,
}

/// The input of a task; for one writer.
#[derive(Debug)]
pub struct TaskInput {
    control: TaskControl,
    sent: u64,
    taken: watch::Receiver<u64>,
}

/// A keeper has gone without a word; there is nobody to write to.
#[derive(Debug, thiserror::Error)]
#[error("the keeper is gone")]
pub struct KeeperGone(#[from] io::Error);

impl Task {
    /// Takes up a keeper that has just begun, and goes back to the others when it has ended.
    pub(super) fn begun(
        task: TaskId,
        folder: PathBuf,
        stream: UnixStream,
        received: Vec<u8>,
        keepers: Arc<Keepers>,
    ) -> Self {
        Self::follow(task, folder, Some((stream, received)), (0, 0), Some(keepers))
    }

    /// Takes up a keeper of before that has been greeted.
    pub(super) fn found(
        task: TaskId,
        folder: PathBuf,
        stream: UnixStream,
        received: Vec<u8>,
        stdin: (u64, u64),
    ) -> Self {
        Self::follow(task, folder, Some((stream, received)), stdin, None)
    }

    /// Takes up what is left of a task whose keeper is gone, and which SIGKILL did not end.
    pub(super) fn orphan(task: TaskId, folder: PathBuf) -> Self {
        Self::follow(task, folder, None, (0, 0), None)
    }

    fn follow(
        task: TaskId,
        folder: PathBuf,
        keeper: Option<(UnixStream, Vec<u8>)>,
        (stdin_received, stdin_taken): (u64, u64),
        keepers: Option<Arc<Keepers>>,
    ) -> Self {
        let split = |(stream, received): (UnixStream, _)| {
            let (reader, writer) = stream.into_split();
            ((reader, received), Orders { writer, torn: false })
        };
        let (keeper, writer) = keeper.map(split).unzip();
        let control = TaskControl { writer: Arc::new(Mutex::new(writer)) };
        let (events_in, events) = mpsc::channel(EVENTS_MAX);
        let (totals_in, totals) = watch::channel(Totals::default());
        let (taken_in, taken) = watch::channel(stdin_taken);
        let listener = Listener { task, folder, totals: totals_in, taken: taken_in };
        let ends = control.clone();
        tokio::spawn(async move {
            // The last event is never lost: it is what frees the GPUs.
            let (outcome, reader) = match keeper {
                Some((reader, received)) => listener.listen(reader, received, &events_in).await,
                None => (listener.without_keeper(&events_in).await, None),
            };
            let writer = ends.close().await;
            if let (Some(keepers), Some(reader), Some(writer)) = (keepers, reader, writer)
                && let Ok(keeper) = reader.reunite(writer)
            {
                keepers.give_back(keeper);
            }
            let _ = events_in.send(Event::Gone(outcome)).await;
        });
        let input = TaskInput { control: control.clone(), sent: stdin_received, taken };
        Self { control, input, events, totals, stdin_received }
    }
}

impl TaskControl {
    /// Ends the task: SIGTERM to its process group, and after `grace` SIGKILL to all of it.
    ///
    /// # Errors
    /// If the keeper is gone, and with it the task.
    pub async fn stop(&self, grace: Duration) -> Result<(), KeeperGone> {
        let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.write(&ToKeeper::Stop(millis)).await
    }

    async fn write(&self, message: &ToKeeper) -> Result<(), KeeperGone> {
        match &mut *self.writer.lock().await {
            Some(orders) => {
                orders.torn = true;
                orders.writer.write_all(&frame(message)).await?;
                orders.torn = false;
                Ok(())
            }
            None => Err(KeeperGone(io::ErrorKind::NotConnected.into())),
        }
    }

    /// No more orders; answers what they were written to, unless one was torn.
    async fn close(&self) -> Option<OwnedWriteHalf> {
        let orders = self.writer.lock().await.take();
        orders.filter(|orders| !orders.torn).map(|orders| orders.writer)
    }
}

impl TaskInput {
    /// Passes input on; waits while the task's pipe and the window before it are full.
    ///
    /// # Errors
    /// If the keeper is gone.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), KeeperGone> {
        for part in bytes.chunks(STDIN_MAX as usize / 4) {
            let limit = STDIN_MAX - part.len() as u64;
            let sent = self.sent;
            let room = self.taken.wait_for(|taken| sent.saturating_sub(*taken) <= limit).await;
            room.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            let message = ToKeeper::Stdin(serde_bytes::ByteBuf::from(part));
            self.control.write(&message).await?;
            self.sent += part.len() as u64;
        }
        Ok(())
    }

    /// No more input.
    ///
    /// # Errors
    /// If the keeper is gone.
    pub async fn end(&mut self) -> Result<(), KeeperGone> {
        self.control.write(&ToKeeper::StdinEof).await
    }

    /// How much the task's pipe has taken, and news of it.
    pub fn taken(&self) -> watch::Receiver<u64> {
        self.taken.clone()
    }
}

/// Listens to a keeper.
struct Listener {
    task: TaskId,
    folder: PathBuf,
    totals: watch::Sender<Totals>,
    taken: watch::Sender<u64>,
}

impl Listener {
    /// Until the task is gone, one way or another. Answers also a keeper that is still there.
    async fn listen(
        &self,
        mut reader: OwnedReadHalf,
        mut received: Vec<u8>,
        events: &mpsc::Sender<Event>,
    ) -> (Outcome, Option<OwnedReadHalf>) {
        loop {
            while let Ok(Some(message)) = take(&mut received) {
                match message {
                    ToDaemon::Totals(totals) => drop(self.totals.send_replace(totals)),
                    ToDaemon::StdinTaken(taken) => drop(self.taken.send_replace(taken)),
                    // If nobody listens any more, the daemon is stopping.
                    ToDaemon::CommandEnded => drop(events.send(Event::CommandEnded).await),
                    ToDaemon::Stuck(why) => drop(events.send(Event::Stuck(why)).await),
                    ToDaemon::Gone(outcome) => {
                        return (outcome, Some(reader).filter(|_| received.is_empty()));
                    }
                    ToDaemon::Hello { .. } | ToDaemon::Started | ToDaemon::StartFailed { .. } => {}
                }
            }
            match reader.read_buf(&mut received).await {
                Ok(0) | Err(_) => return (self.without_keeper(events).await, None),
                Ok(_) => {}
            }
        }
    }

    /// The keeper is gone without a word. It may have left one in the folder; if not, it was
    /// killed, and what it stood over is ended now, however long that takes: it has the GPUs.
    async fn without_keeper(&self, events: &mpsc::Sender<Event>) -> Outcome {
        if let Ok(ending) = load::<Ending>(&self.folder.join(OUTCOME)) {
            self.totals.send_replace(ending.totals);
            return ending.outcome;
        }
        tracing::warn!(task = %self.task, "a keeper was killed; its task is ended");
        let mut told = false;
        loop {
            let left = end_leftovers(self.task).await;
            if left.is_empty() {
                self.totals.send_replace(salvage(&self.folder));
                return lost_with_keeper();
            }
            if !std::mem::replace(&mut told, true) {
                let why = format!("SIGKILL does not end process {}", left.join(", "));
                // If nobody listens any more, the daemon is stopping.
                let _ = events.send(Event::Stuck(why)).await;
            }
        }
    }
}

/// How a task ends whose keeper was killed.
pub(super) fn lost_with_keeper() -> Outcome {
    Outcome::Lost { why: "the process that kept it was killed".into() }
}

/// Kills every process of a task whose keeper is gone, and waits for a while until they are; the
/// ids of those that are left.
pub(super) async fn end_leftovers(task: TaskId) -> Vec<String> {
    let end = move || {
        let mut left = Vec::new();
        for _ in 0..ROUNDS {
            left = marked(&task.to_string());
            if left.is_empty() {
                break;
            }
            signal(&left, rustix::process::Signal::KILL);
            left.iter().for_each(|pid| wait_for(*pid));
        }
        left.iter().take(8).map(|pid| pid.as_raw_nonzero().to_string()).collect()
    };
    tokio::task::spawn_blocking(end).await.unwrap_or_else(|panicked| {
        tracing::error!(%task, mark = MARK, %panicked, "what is left of a task is not known");
        Vec::new()
    })
}

/// Waits up to a second for a process that is not our child.
#[cfg(target_os = "linux")]
fn wait_for(pid: rustix::process::Pid) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{PidfdFlags, pidfd_open};
    // Gone already.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&second));
}

/// Without pidfds the next look at the processes has to tell.
#[cfg(not(target_os = "linux"))]
fn wait_for(_: rustix::process::Pid) {}

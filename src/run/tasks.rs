//! All tasks of this node: starting them, and finding them again.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::environment::Variable;
use super::folder::{
    ABOUT, About, Ending, FolderError, HEARD, OUTCOME, SOCKET, boot, is_kept, load, load_about,
    save, void,
};
use super::folders::Folders;
use super::keepers::Keepers;
use super::output::{OutputReader, Which, salvage};
use super::protocol::{Start, ToDaemon, ToKeeper, Totals, frame, take};
use super::task::{StartError, Task, end_leftovers, lost_with_keeper};
use crate::core::task::{Outcome, TaskId};
use crate::core::time::Duration;

/// How long a keeper may take to answer a daemon that comes back.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a keeper that does not listen yet is left alone. It does as soon as it sees that its
/// daemon is gone, which takes it less than a daemon takes to start.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Tasks of before that are looked for at once.
const RECOVER_AT_ONCE: usize = 64;

/// What is started.
#[derive(Clone, Debug)]
pub struct StartSpec {
    /// The task.
    pub task: TaskId,
    /// What the daemon wants to know of it after a restart; kept in the folder.
    pub about: Vec<u8>,
    /// The command. Its variables are not looked at: `env` is all.
    pub command: crate::core::task::Command,
    /// The whole environment.
    pub env: Vec<Variable>,
    /// Bytes kept of each output.
    pub output_max: u64,
    /// Time between SIGTERM and SIGKILL for what the command leaves behind.
    pub grace: Duration,
}

/// A task of before this start of the daemon.
#[derive(Debug)]
pub struct Recovered {
    /// The task.
    pub task: TaskId,
    /// What the daemon wrote down of it.
    pub about: Vec<u8>,
    /// What has become of it.
    pub fate: Fate,
    /// Whether its home knows how it ended.
    pub heard: bool,
}

/// What has become of a task while there was no daemon.
#[derive(Debug)]
pub enum Fate {
    /// Its keeper stands over it.
    Alive(Task),
    /// It has ended, with so much output.
    Ended(Outcome, Totals),
}

/// The tasks of this node.
#[derive(Clone, Debug)]
pub struct Tasks {
    folders: Arc<Folders>,
    keepers: Arc<Keepers>,
}

impl Tasks {
    /// Tasks in this folder, under keepers that are this program.
    ///
    /// # Errors
    /// If there is no such folder and none can be made.
    pub fn open(root: PathBuf, program: PathBuf) -> Result<Self, FolderError> {
        let folders = Folders::open(root)?;
        let keepers = Keepers::new(program, folders.root().to_owned());
        Ok(Self { folders: Arc::new(folders), keepers: Arc::new(keepers) })
    }

    /// The directory in which a task runs unless its user names another.
    pub fn work(&self, task: TaskId) -> PathBuf {
        self.folders.work(task)
    }

    /// Starts a task; returns when its process runs.
    ///
    /// # Errors
    /// If it cannot be started; nothing is left of it then.
    pub async fn start(&self, spec: StartSpec) -> Result<Task, StartError> {
        let task = spec.task;
        let started = self.begin(spec).await;
        if started.is_err() {
            // A keeper that died half way may have started something.
            end_leftovers(task).await;
            self.forget(task).await;
        }
        started
    }

    async fn begin(&self, spec: StartSpec) -> Result<Task, StartError> {
        let about = About { about: spec.about.into(), output_max: spec.output_max, boot: boot() };
        let folder = self.folders.make(spec.task).map_err(StartError::here)?;
        save(&folder.join(ABOUT), &about).map_err(StartError::here)?;
        let start = ToKeeper::Start(Box::new(Start {
            folder: folder.as_os_str().as_bytes().to_vec().into(),
            command: spec.command,
            env: spec.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            output_max: spec.output_max,
            grace_ms: u64::try_from(spec.grace.as_millis()).unwrap_or(u64::MAX),
        }));
        let (stream, received, answer) = self.hand_over(&start).await.map_err(StartError::here)?;
        match answer {
            ToDaemon::Started => {
                let keepers = Arc::clone(&self.keepers);
                Ok(Task::begun(spec.task, folder, stream, received, keepers))
            }
            ToDaemon::StartFailed { why, elsewhere } => Err(StartError { why, elsewhere }),
            _ => Err(StartError::here("its keeper spoke out of turn")),
        }
    }

    /// Gives a task to the spare keeper, or to a new one if that is gone.
    async fn hand_over(&self, start: &ToKeeper) -> io::Result<(UnixStream, Vec<u8>, ToDaemon)> {
        let start = frame(start);
        let mut received = Vec::new();
        let spare = self.keepers.take_spare();
        if let Some(mut stream) = spare
            && stream.write_all(&start).await.is_ok()
            && let Ok(answer) = next(&mut stream, &mut received).await
        {
            return Ok((stream, received, answer));
        }
        received.clear();
        let mut stream = self.keepers.fork()?;
        stream.write_all(&start).await?;
        let answer = next(&mut stream, &mut received).await?;
        Ok((stream, received, answer))
    }

    /// Has a keeper waiting for the next task. A failure is found again when it is needed.
    pub fn prepare(&self) {
        self.keepers.prepare();
    }

    /// Finds the tasks of before again.
    pub async fn recover(&self) -> Vec<Recovered> {
        let found = self.folders.tasks().into_iter().map(|task| self.recover_one(task));
        // A keeper that does not answer does not hold up the others.
        let found: Vec<_> = stream::iter(found).buffered(RECOVER_AT_ONCE).collect().await;
        found.into_iter().flatten().collect()
    }

    async fn recover_one(&self, task: TaskId) -> Option<Recovered> {
        match load_about(&self.folder(task)) {
            Ok(about) => {
                if let Some(fate) = self.fate(task, &about).await {
                    let heard = self.folder(task).join(HEARD).exists();
                    return Some(Recovered { task, about: about.about.into_vec(), fate, heard });
                }
            }
            Err(error) => {
                // Killed before it was written, or damaged: whose it was is not known.
                tracing::warn!(%task, error = %error, "a task's folder cannot be read");
                end_leftovers(task).await;
            }
        }
        self.forget(task).await;
        None
    }

    /// What has become of a task; `None` if it was only written down. Its home may place that
    /// again.
    async fn fate(&self, task: TaskId, about: &About) -> Option<Fate> {
        let folder = self.folder(task);
        if about.boot != boot() {
            let why = "its machine was restarted".to_owned();
            let lost = || Fate::Ended(Outcome::Lost { why }, salvage(&folder));
            return Some(recorded(&folder).unwrap_or_else(lost));
        }
        // Before anything else, so that a keeper that is slow to begin does not begin after this.
        // One of an earlier version took nothing up, but listened, and made the output files.
        let is_begun = [SOCKET, Which::Stdout.file()].iter().any(|name| folder.join(name).exists());
        if !is_begun && void(&folder) {
            return None;
        }
        let silent = match self.reconnect(task, &folder).await {
            Ok(alive) => return Some(Fate::Alive(alive)),
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
        };
        if let Some(ended) = recorded(&folder) {
            return Some(ended);
        }
        // A keeper makes the output files, then starts the command. One that does not answer may
        // still do both.
        if !silent && !folder.join(Which::Stdout.file()).exists() {
            return None;
        }
        if !end_leftovers(task).await.is_empty() {
            // Its GPUs are taken as long as anything of it is there.
            return Some(Fate::Alive(Task::orphan(task, folder)));
        }
        Some(Fate::Ended(lost_with_keeper(), salvage(&folder)))
    }

    async fn reconnect(&self, task: TaskId, folder: &Path) -> io::Result<Task> {
        let connect = async {
            let mut stream = loop {
                match connect(folder).await {
                    Ok(stream) => break stream,
                    Err(_) if is_kept(folder) => tokio::time::sleep(LOOK_AGAIN).await,
                    Err(error) => return Err(error),
                }
            };
            let mut received = Vec::new();
            match next(&mut stream, &mut received).await? {
                ToDaemon::Hello { stdin, .. } => {
                    Ok(Task::found(task, folder.to_owned(), stream, received, stdin))
                }
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        tokio::time::timeout(ANSWER, connect).await?
    }

    /// The reading ends of a task's outputs.
    ///
    /// # Errors
    /// If its folder is not there any more.
    pub fn outputs(&self, task: TaskId) -> Result<(OutputReader, OutputReader), FolderError> {
        let folder = self.folder(task);
        let about = load_about(&folder)?;
        let open = |which| {
            OutputReader::open(&folder, which, about.output_max)
                .map_err(|source| FolderError::reading(folder.join("output"), source))
        };
        Ok((open(Which::Stdout)?, open(Which::Stderr)?))
    }

    /// Removes everything of a task that has ended; there may be a hundred thousand files.
    pub async fn forget(&self, task: TaskId) {
        self.on_disk(task, Folders::remove).await;
    }

    /// The same for a task whose output nobody reads any more: the next may have its files.
    pub async fn recycle(&self, task: TaskId) {
        self.on_disk(task, Folders::recycle).await;
    }

    /// Remembers over a restart of the daemon that its home knows how a task ended.
    pub async fn mark_heard(&self, task: TaskId) {
        self.on_disk(task, Folders::mark_heard).await;
    }

    async fn on_disk(&self, task: TaskId, act: fn(&Folders, TaskId) -> io::Result<()>) {
        let folders = Arc::clone(&self.folders);
        let done = tokio::task::spawn_blocking(move || act(&folders, task)).await;
        if let Err(error) = done.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            tracing::warn!(%task, %error, "a task's folder cannot be changed");
        }
    }

    fn folder(&self, task: TaskId) -> PathBuf {
        self.folders.of(task)
    }
}

/// The next message of a keeper.
async fn next(stream: &mut UnixStream, received: &mut Vec<u8>) -> io::Result<ToDaemon> {
    loop {
        if let Some(message) = take(received)? {
            return Ok(message);
        }
        if stream.read_buf(received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The end that a keeper has left in the folder.
fn recorded(folder: &Path) -> Option<Fate> {
    let kept = |name: &str| load::<Ending>(&folder.join(name));
    let Ending { outcome, totals } = kept(OUTCOME).or_else(|_| kept(HEARD)).ok()?;
    Some(Fate::Ended(outcome, totals))
}

/// Connects to a keeper's socket, however long the path to it is.
async fn connect(folder: &Path) -> io::Result<UnixStream> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        let directory = std::fs::File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        UnixStream::connect(path).await
    }
    #[cfg(not(target_os = "linux"))]
    UnixStream::connect(folder.join(SOCKET)).await
}

#[cfg(test)]
mod tests {
    use super::super::folder::{begin, make_dir};
    use super::*;
    use crate::core::id::{Attempt, JobId};

    fn written_down(tasks: &Tasks) -> TaskId {
        let task = TaskId { job: JobId::from_bits(7), attempt: Attempt(1) };
        let about = About { about: b"x".to_vec().into(), output_max: 1 << 20, boot: boot() };
        make_dir(&tasks.folder(task)).unwrap();
        save(&tasks.folder(task).join(ABOUT), &about).unwrap();
        task
    }

    /// A daemon was killed between writing down a task and starting it. Its home was told that
    /// the task is lost, although nothing had run.
    #[tokio::test]
    async fn a_task_that_was_only_written_down_never_was() {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(root.path().to_owned(), "/nonexistent".into()).unwrap();
        let task = written_down(&tasks);
        assert!(tasks.recover().await.is_empty());
        assert!(!tasks.folder(task).exists());
        // Its keeper had got as far as to take it up, and was killed too.
        let task = written_down(&tasks);
        drop(begin(&tasks.folder(task)).unwrap());
        assert!(tasks.recover().await.is_empty());
        assert!(!tasks.folder(task).exists());
    }

    /// With output files it may have run.
    #[tokio::test]
    async fn a_task_whose_keeper_was_killed_is_lost() {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(root.path().to_owned(), "/nonexistent".into()).unwrap();
        let task = written_down(&tasks);
        let folder = tasks.folder(task);
        drop(begin(&folder).unwrap());
        std::fs::write(folder.join(Which::Stdout.file()), "partial").unwrap();
        let found = tasks.recover().await;
        let [Recovered { fate: Fate::Ended(Outcome::Lost { .. }, totals), heard: false, .. }] =
            &found[..]
        else {
            panic!("{found:?}");
        };
        // What it had said is not lost with it.
        assert_eq!(*totals, Totals { stdout: 7, stderr: 0 });
        tasks.mark_heard(task).await;
        let [Recovered { fate: Fate::Ended(..), heard: true, .. }] = &tasks.recover().await[..]
        else {
            panic!("its home knows");
        };
    }

    /// What asked a keeper to begin is gone, and its successor has been faster than the keeper; or
    /// the keeper was.
    #[tokio::test]
    async fn a_task_is_taken_up_or_given_up_and_never_both() {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(root.path().to_owned(), "/nonexistent".into()).unwrap();
        let task = written_down(&tasks);
        let folder = tasks.folder(task);
        assert!(void(&folder));
        assert!(!void(&folder) && begin(&folder).is_err() && !is_kept(&folder));
        tasks.forget(task).await;
        written_down(&tasks);
        let keeper = begin(&folder).unwrap();
        assert!(!void(&folder) && begin(&folder).is_err() && is_kept(&folder));
        drop(keeper);
        assert!(!is_kept(&folder));
    }

    /// A keeper listens only when it has seen that its daemon is gone; the next may be there first.
    #[tokio::test]
    async fn a_keeper_that_does_not_listen_yet_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(root.path().to_owned(), "/nonexistent".into()).unwrap();
        let task = written_down(&tasks);
        let folder = tasks.folder(task);
        let keeper = begin(&folder).unwrap();
        let (found, ()) = tokio::join!(tasks.recover(), async {
            // Its turn comes when the other waits for the first time.
            let listener = tokio::net::UnixListener::bind(folder.join(SOCKET)).unwrap();
            let (mut daemon, _) = listener.accept().await.unwrap();
            let hello = ToDaemon::Hello { stdin: (0, 0), ended: false };
            daemon.write_all(&frame(&hello)).await.unwrap();
        });
        assert!(matches!(found[..], [Recovered { fate: Fate::Alive(_), .. }]), "{found:?}");
        drop(keeper);
    }
}

//! A task's folder: what is kept of it, and how it is opened.
//!
//! | file | written by | what |
//! | --- | --- | --- |
//! | `about` | daemon, before the start | what the daemon wants to know after a restart |
//! | `begun` | keeper, first of all | the same, locked for as long as there is a keeper |
//! | `sock` | keeper, without a daemon | where a daemon that comes back connects |
//! | `stdout`, `stderr` | keeper | the output, capped |
//! | `outcome` | keeper, at the end | how the task ended, and how much output there was |
//! | `heard` | daemon | the same, once its home knows of it |
//! | `work/` | daemon | the task's own directory |
//!
//! Folders are 0700 and nothing in them is followed if it is a symbolic link: the task may have the
//! same user, and may be curious.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::protocol::Totals;
use crate::core::task::{Outcome, TaskId};

/// Bytes of a small file: an `about` holds a lease of many GPUs.
const SMALL_MAX: u64 = 1024 * 1024;

/// Where a keeper listens whose daemon is gone.
pub(super) const SOCKET: &str = "sock";

/// What is known of a task. Whoever takes this name away decides whether it is ever started.
pub(super) const ABOUT: &str = "about";

/// The same once a keeper has taken it up.
pub(super) const BEGUN: &str = "begun";

/// The same once a daemon has seen that no keeper had.
const VOID: &str = "void";

/// How the task ended, once its keeper has seen it out.
pub(super) const OUTCOME: &str = "outcome";

/// The same once the task's home knows of it.
pub(super) const HEARD: &str = "heard";

/// What cannot be done with a task's folder.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub struct FolderError {
    what: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// What a daemon keeps about a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    /// The daemon's own words.
    pub(super) about: serde_bytes::ByteBuf,
    /// Bytes kept of each output.
    pub(super) output_max: u64,
    /// The machine's boot in which it was started: nothing of another boot is alive.
    pub(super) boot: String,
}

/// How a task ended, as its keeper leaves it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) totals: Totals,
}

/// The name of a task's folder.
pub(super) fn name(task: TaskId) -> String {
    task.to_string()
}

/// The task of a folder with this name.
pub(super) fn task_of(name: &str) -> Option<TaskId> {
    let (job, attempt) = name.split_once('.')?;
    Some(TaskId {
        job: job.parse().ok()?,
        attempt: crate::core::id::Attempt(attempt.parse().ok()?),
    })
}

/// Makes a new folder for its owner alone.
pub(super) fn make_dir(path: &Path) -> Result<(), FolderError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| FolderError { what: "cannot make", path: path.to_owned(), source })
}

/// Creates a file that must not exist.
pub(super) fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(NO_FOLLOW)
        .open(path)
}

/// Opens a file to read.
pub(super) fn open_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path)
}

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Writes a small file whole or not at all. Not flushed: what it tells dies with the machine.
pub(super) fn save(path: &Path, value: &impl Serialize) -> Result<(), FolderError> {
    let fail = |source| FolderError { what: "cannot write", path: path.to_owned(), source };
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes)
        .map_err(|error| fail(io::Error::other(error.to_string())))?;
    let new = unborn(path);
    reopen(&new)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| fs::rename(&new, path))
        .map_err(fail)
}

/// Makes an empty file that is to grow, of a retired one if there is one.
pub(super) fn open_again(path: &Path) -> io::Result<File> {
    let new = unborn(path);
    let file = reopen(&new)?;
    fs::rename(&new, path)?;
    Ok(file)
}

/// Empties a file and takes its name away; the next of that name is made of it.
pub(super) fn retire(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).custom_flags(NO_FOLLOW).open(path)?;
    if !is_ours(&file) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.set_len(0)?;
    fs::rename(path, unborn(path))
}

/// Where a file is before it has its name.
fn unborn(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// An empty file, the one that is there if it will do.
fn reopen(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).custom_flags(NO_FOLLOW).open(path) {
        Ok(file) if is_ours(&file) => {
            file.set_len(0)?;
            return Ok(file);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => fs::remove_file(path)?,
    }
    open_new(path)
}

/// Whether this is a file as it is made here, and has no other name: a task of the same user may
/// have put another in its place.
fn is_ours(file: &File) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.nlink() == 1 && found.mode() & 0o777 == 0o600)
}

/// Reads a small file.
pub(super) fn load<V: for<'de> Deserialize<'de>>(path: &Path) -> Result<V, FolderError> {
    let fail = |source| FolderError { what: "cannot read", path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open_read(path).and_then(|file| file.take(SMALL_MAX).read_to_end(&mut bytes)).map_err(fail)?;
    ciborium::from_reader(bytes.as_slice())
        .map_err(|error| fail(io::Error::other(error.to_string())))
}

/// What is known of a task, whether it was begun or not.
pub(super) fn load_about(folder: &Path) -> Result<About, FolderError> {
    load(&folder.join(BEGUN))
        .or_else(|_| load(&folder.join(ABOUT)))
        // It may have been taken up in between.
        .or_else(|_| load(&folder.join(BEGUN)))
}

/// Takes up a task, for its keeper, which holds on to what it gets here.
///
/// # Errors
/// If another has been faster, or there is nothing.
pub(super) fn begin(folder: &Path) -> io::Result<File> {
    // To be written too, or NFS would give no lock that excludes others.
    let open = OpenOptions::new().read(true).write(true).custom_flags(NO_FOLLOW).to_owned();
    let about = open.open(folder.join(ABOUT))?;
    about.try_lock()?;
    fs::rename(folder.join(ABOUT), folder.join(BEGUN))?;
    Ok(about)
}

/// Sees to it that a task is never taken up. False if it was.
pub(super) fn void(folder: &Path) -> bool {
    fs::rename(folder.join(ABOUT), folder.join(VOID)).is_ok()
}

/// Whether the keeper that took a task up is still there.
pub(super) fn is_kept(folder: &Path) -> bool {
    open_read(&folder.join(BEGUN)).is_ok_and(|begun| begun.try_lock_shared().is_err())
}

/// Names the machine's current boot. Where the system has no name for it every start of the daemon
/// is taken for a new one.
pub(super) fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| std::process::id().to_string(), |id| id.trim().to_owned())
}

impl FolderError {
    /// A file that cannot be read.
    pub(super) fn reading(path: PathBuf, source: io::Error) -> Self {
        Self { what: "cannot read", path, source }
    }
}

//! The folders of a node's tasks, and those of ended ones that are used again.
//!
//! A short task costs little but its files: a file system without a journal does not hand out an
//! inode again for minutes after it was freed, and looks for another in vain through all of those;
//! one with a journal writes each down twice. So what held an ended task is emptied and kept, some
//! of it, for the next: the folder, its record, its outputs. Nothing that a task made itself is:
//! its own directory is always a new one, for what a task makes of its own (attributes, mounts in a
//! container that outlives it) would be the next one's.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::folder::{
    ABOUT, BEGUN, FolderError, HEARD, OUTCOME, SOCKET, make_dir, name, open_again, retire, task_of,
};
use super::output::Which;
use crate::core::task::TaskId;

/// Empty folders that are kept.
const SPARES_MAX: usize = 64;

/// What a spare folder's name begins with.
const SPARE: &str = "spare-";

/// The directory in which a task runs unless its user names another.
const WORK: &str = "work";

/// What else is in a folder.
const OTHERS: [&str; 4] = [BEGUN, HEARD, SOCKET, WORK];

/// All folders.
#[derive(Debug)]
pub(super) struct Folders {
    root: PathBuf,
    spares: Mutex<Spares>,
}

#[derive(Debug, Default)]
struct Spares {
    there: Vec<PathBuf>,
    /// How many there ever were: a name for the next.
    made: u64,
}

impl Folders {
    /// Folders within this one; spares of before are removed.
    ///
    /// # Errors
    /// If there is no such folder and none can be made.
    pub(super) fn open(root: PathBuf) -> Result<Self, FolderError> {
        if !root.is_dir() {
            make_dir(&root)?;
        }
        let folders = Self { root, spares: Mutex::default() };
        for name in folders.names().filter(|name| name.starts_with(SPARE)) {
            if let Err(error) = remove(&folders.root.join(&name)) {
                tracing::warn!(name, %error, "a folder that is not needed cannot be removed");
            }
        }
        Ok(folders)
    }

    /// The tasks that have one.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        self.names().filter_map(|name| task_of(&name)).collect()
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    }

    /// Where they are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a task.
    pub(super) fn of(&self, task: TaskId) -> PathBuf {
        self.root.join(name(task))
    }

    /// The directory in which a task runs unless its user names another.
    pub(super) fn work(&self, task: TaskId) -> PathBuf {
        self.of(task).join(WORK)
    }

    /// Makes the folder of a task.
    ///
    /// # Errors
    /// If it is there already, or the disk fails.
    pub(super) fn make(&self, task: TaskId) -> Result<PathBuf, FolderError> {
        let folder = self.of(task);
        let spare = self.lock().there.pop();
        // It does not take the place of another that has something in it.
        if spare.is_none_or(|spare| fs::rename(spare, &folder).is_err()) {
            make_dir(&folder)?;
        }
        make_dir(&folder.join(WORK))?;
        Ok(folder)
    }

    /// Empties the folder of a task into which nobody looks any more, and keeps it for another, if
    /// its keeper has seen the task out and nothing is there that does not belong there. Removes it
    /// otherwise.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn recycle(&self, task: TaskId) -> io::Result<()> {
        let folder = self.of(task);
        let number = {
            let mut spares = self.lock();
            spares.made += 1;
            (spares.there.len() < SPARES_MAX).then_some(spares.made)
        };
        let Some(number) = number else { return remove(&folder) };
        let spare = self.root.join(format!("{SPARE}{number}"));
        if empty(&folder).and_then(|()| fs::rename(&folder, &spare)).is_err() {
            return remove(&folder);
        }
        self.lock().there.push(spare);
        Ok(())
    }

    /// Writes down that its home knows how a task ended.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn mark_heard(&self, task: TaskId) -> io::Result<()> {
        let folder = self.of(task);
        match fs::rename(folder.join(OUTCOME), folder.join(HEARD)) {
            // Its keeper was killed and left none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                open_again(&folder.join(HEARD)).map(drop)
            }
            renamed => renamed,
        }
    }

    /// Removes the folder of a task, whatever is in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self, task: TaskId) -> io::Result<()> {
        remove(&self.of(task))
    }

    fn lock(&self) -> MutexGuard<'_, Spares> {
        // Nothing under the lock can panic half way.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves nothing of a task that its keeper has seen out but files for the next.
fn empty(folder: &Path) -> io::Result<()> {
    let files = [ABOUT, OUTCOME, Which::Stdout.file(), Which::Stderr.file()];
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let belongs =
            name.to_str().is_some_and(|name| files.contains(&name) || OTHERS.contains(&name));
        if !belongs {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
    }
    for (now, before) in [(HEARD, OUTCOME), (BEGUN, ABOUT)] {
        or_nothing(fs::rename(folder.join(now), folder.join(before)))?;
    }
    // The last to be written. Without it the task may be half alive.
    if fs::metadata(folder.join(OUTCOME))?.len() == 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    retire(&folder.join(OUTCOME))?;
    for file in &files {
        if *file != OUTCOME {
            retire(&folder.join(file))?;
        }
    }
    or_nothing(fs::remove_file(folder.join(SOCKET)))?;
    remove(&folder.join(WORK))
}

/// It may have been done, or not have been needed.
fn or_nothing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes a folder and all that is in it, also what a task has made read-only.
fn remove(folder: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(folder)?;
            fs::remove_dir_all(folder)
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Lets files be removed from a folder and from all folders in it. Links are not followed.
fn make_writable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{Attempt, JobId};
    use crate::run::folder::{load, save};

    fn task(job: u64) -> TaskId {
        TaskId { job: JobId::from_bits(job), attempt: Attempt(1) }
    }

    fn folders() -> (tempfile::TempDir, Folders) {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::open(root.path().join("tasks")).unwrap();
        (root, folders)
    }

    /// A folder as a keeper leaves it.
    fn ended(folders: &Folders, job: u64) -> PathBuf {
        let folder = folders.make(task(job)).unwrap();
        save(&folder.join(BEGUN), &job).unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.join(SOCKET)).unwrap());
        for which in [Which::Stdout, Which::Stderr] {
            let file = open_again(&folder.join(which.file())).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 0);
            fs::write(folder.join(which.file()), format!("secret of {job}")).unwrap();
        }
        save(&folder.join(OUTCOME), &job).unwrap();
        folder
    }

    #[test]
    fn nothing_of_a_task_is_seen_by_the_next_in_its_folder() {
        let (_root, folders) = folders();
        let first = ended(&folders, 1);
        fs::write(first.join(WORK).join("mine"), "x").unwrap();
        folders.mark_heard(task(1)).unwrap();
        folders.recycle(task(1)).unwrap();
        assert!(!first.exists());
        assert!(folders.tasks().is_empty());
        let second = folders.make(task(2)).unwrap();
        let names = |folder: &Path| -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        // None of these names is ever read.
        assert_eq!(names(&second), ["about.new", "outcome.new", "stderr.new", "stdout.new", WORK]);
        assert!(names(&second.join(WORK)).is_empty());
        for name in ["stdout.new", "stderr.new"] {
            assert_eq!(fs::metadata(second.join(name)).unwrap().len(), 0);
        }
        fs::remove_dir_all(second.join(WORK)).unwrap();
        fs::rename(&second, folders.root().join("spare-0")).unwrap();
        let third = ended(&folders, 3);
        assert_eq!(load::<u64>(&third.join(BEGUN)).unwrap(), 3);
        assert_eq!(fs::read(third.join("stdout")).unwrap(), b"secret of 3");
    }

    #[test]
    fn only_what_a_keeper_has_seen_out_is_used_again() {
        let (_root, folders) = folders();
        // Its keeper was killed.
        let lost = ended(&folders, 1);
        fs::remove_file(lost.join(OUTCOME)).unwrap();
        // A task has put something there, and another has given its output a second name.
        let strange = ended(&folders, 2);
        fs::write(strange.join("notes"), "x").unwrap();
        let linked = ended(&folders, 3);
        let copy = folders.root().join("copy");
        fs::hard_link(linked.join("stdout"), &copy).unwrap();
        for job in 1..=3 {
            folders.mark_heard(task(job)).unwrap();
            folders.recycle(task(job)).unwrap();
        }
        assert!(folders.lock().there.is_empty());
        assert_eq!(fs::read(&copy).unwrap(), b"secret of 3");
        assert!(folders.tasks().is_empty());
    }

    #[test]
    fn spares_are_bounded_and_do_not_outlive_the_daemon() {
        let (root, folders) = folders();
        for job in 0..=SPARES_MAX as u64 {
            ended(&folders, job);
        }
        for job in 0..=SPARES_MAX as u64 {
            folders.recycle(task(job)).unwrap();
        }
        assert_eq!(folders.names().count(), SPARES_MAX);
        let folders = Folders::open(root.path().join("tasks")).unwrap();
        assert_eq!(folders.names().count(), 0);
    }
}

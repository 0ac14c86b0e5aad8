//! What survives a restart: an embedded database, a fence, and secret files.
//!
//! One thread owns the database and writes in groups: what is asked for within a few
//! milliseconds, or while the disk is busy, goes into one commit, and every commit is flushed
//! before anybody is told. Nobody waits for the disk on the path of an attached `run`. What must
//! only grow (the number of this start, the highest term) lies in a small file of its own, so
//! that a damaged database takes no fence with it.

mod database;
mod fence;
pub mod secret;
#[cfg(test)]
mod tests;
pub mod whole;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use self::database::Database;
use self::fence::Fence;
use crate::auth::{Credential, TicketId, Used};
use crate::clock;
use crate::core::id::{Incarnation, JobId, NodeId, Term};
use crate::core::job::JobRecord;
use crate::core::time::Duration;

/// Requests that may wait for the disk.
const REQUESTS_MAX: usize = 16_384;

/// How long more is waited for before a commit, so that the records of a short job are one. A term
/// that is to be claimed does not wait, nor does what makes the node a member.
const GROUP_WAIT: Duration = Duration::from_millis(10);

/// Requests in one commit.
const GROUP_MAX: usize = 512;

/// How long a disk that failed is left alone.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Peers whose addresses are remembered.
pub const PEERS_MAX: usize = 1_024;

/// What cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon works in this folder.
    #[error("another gpuvine daemon uses {}", .0.display())]
    Busy(PathBuf),
    /// The database failed.
    #[error("the database {} failed", path.display())]
    Database {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: redb::Error,
    },
    /// A file failed.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The folder was written by a later version.
    #[error("{} was written by a later version of gpuvine (format {found}, known here: {known})", path.display())]
    Later {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The latest known here.
        known: u64,
    },
}

/// What was found at a start.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The number of this start: already on disk.
    pub incarnation: Incarnation,
    /// The highest term that was heard of.
    pub term: Term,
    /// The node's place in the order of arrival, if it has one.
    pub seniority: Option<u64>,
    /// The node's credential, if it has joined.
    pub credential: Option<Credential>,
    /// The jobs of this home.
    pub jobs: Vec<JobRecord>,
    /// Members, and where they were last.
    pub peers: Vec<(NodeId, Vec<String>)>,
    /// Tickets, and who has used them.
    pub tickets: Vec<(TicketId, Used)>,
    /// What was damaged and set aside, for the operator.
    pub notes: Vec<String>,
}

/// Something to keep.
#[derive(Clone, Debug, PartialEq)]
pub enum Keep {
    /// A job's latest record.
    Job(Box<JobRecord>),
    /// The node's credential.
    Credential(Box<Credential>),
    /// Nothing of this job any more.
    ForgetJob(JobId),
    /// The number of this start, raised.
    Incarnation(Incarnation),
    /// Where a member is.
    Peer(NodeId, Vec<String>),
    /// The node's place in the order of arrival.
    Seniority(u64),
    /// The highest term heard of.
    Term(Term),
    /// Who has used a ticket; nothing of it any more.
    Ticket(TicketId, Option<Used>),
}

/// Called when what was to be kept is on disk.
type Done = Box<dyn FnOnce() + Send>;

/// The door to the disk.
#[derive(Debug)]
pub struct Store {
    requests: Option<mpsc::SyncSender<(Keep, Option<DoneBox>)>>,
    thread: Option<JoinHandle<()>>,
}

/// A callback that can be shown.
struct DoneBox(Done);

impl std::fmt::Debug for DoneBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

/// Writes what `gpuvine init` and `join` leave behind, without a daemon; `keep` sees what is there.
///
/// # Errors
/// If the folder is in use or cannot be read.
pub fn keep_once(folder: &Path, keep: impl FnOnce(&Loaded) -> Vec<Keep>) -> Result<(), StoreError> {
    let (mut database, loaded) = Database::open(folder)?;
    let mut fence = Fence::open(folder)?;
    let mut group = Group::default();
    keep(&loaded).into_iter().for_each(|keep| group.add((keep, None), &mut fence));
    group.write(&mut database, &mut fence)
}

impl Keep {
    /// Whether it is written at once.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Credential(_) | Self::Seniority(_) | Self::Term(_))
    }
}

impl Store {
    /// Opens the store of a folder and begins a new start of the node.
    ///
    /// # Errors
    /// If another daemon uses it, a later version wrote it, or the disk fails. What is merely
    /// damaged is set aside and named in [`Loaded::notes`].
    pub fn open(folder: &Path) -> Result<(Self, Loaded), StoreError> {
        let (database, mut loaded) = Database::open(folder)?;
        let mut fence = Fence::open(folder)?;
        // The larger of what the two files say, and one more.
        let before = loaded.incarnation.max(fence.incarnation());
        fence.raise(before.next(), loaded.term);
        fence.save()?;
        loaded.incarnation = fence.incarnation();
        loaded.term = fence.term();
        let (requests, receiver) = mpsc::sync_channel(REQUESTS_MAX);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(database, fence, &receiver))
            .map_err(|source| StoreError::File { path: folder.to_owned(), source })?;
        let store = Self { requests: Some(requests), thread: Some(thread) };
        store.keep(Keep::Incarnation(loaded.incarnation), None::<fn()>);
        Ok((store, loaded))
    }

    /// Keeps something; `done` is called, on another thread, when it is on disk. Never waits.
    pub fn keep(&self, keep: Keep, done: Option<impl FnOnce() + Send + 'static>) {
        let done = done.map(|done| DoneBox(Box::new(done)));
        let Some(requests) = &self.requests else { return };
        if let Err(error) = requests.try_send((keep, done)) {
            // The disk is thousands of records behind, or has failed for good. What is not kept is
            // not told either: outcomes stay on their nodes, terms are not claimed.
            tracing::error!(%error, "something is not kept: the disk does not keep up");
        }
    }
}

impl Drop for Store {
    /// Writes what waits.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported by its thread.
            let _ = thread.join();
        }
    }
}

/// The thread: as many requests as there are, one flush, then the news.
fn serve(
    mut database: Database,
    mut fence: Fence,
    requests: &mpsc::Receiver<(Keep, Option<DoneBox>)>,
) {
    while let Ok(first) = requests.recv() {
        let mut group = Group::default();
        let until = clock::now() + GROUP_WAIT;
        let mut urgent = first.0.is_urgent();
        group.add(first, &mut fence);
        while group.requests < GROUP_MAX {
            let left = if urgent { Duration::ZERO } else { until.since(clock::now()) };
            let Ok(next) = requests.recv_timeout(left) else { break };
            urgent |= next.0.is_urgent();
            group.add(next, &mut fence);
        }
        keep_group(group, &mut database, &mut fence, requests);
    }
}

/// Writes a group; tries again while the disk is full or fails, and nobody is told meanwhile.
fn keep_group(
    mut group: Group,
    database: &mut Database,
    fence: &mut Fence,
    requests: &mpsc::Receiver<(Keep, Option<DoneBox>)>,
) {
    let mut failed = 0_u32;
    while let Err(error) = group.write(database, fence) {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        failed += 1;
        if failed.is_power_of_two() {
            tracing::error!(%error, ?cause, "the disk takes nothing; it is tried again");
        }
        let until = clock::now() + RETRY_EVERY;
        loop {
            match requests.recv_timeout(until.since(clock::now())) {
                Ok(next) if group.requests < REQUESTS_MAX => group.add(next, fence),
                // What is not kept is not told either.
                Ok(_) => tracing::error!("something is not kept: the disk has failed for long"),
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    if let Err(error) = group.write(database, fence) {
                        tracing::error!(%error, "the last records are not kept");
                    }
                    return;
                }
            }
        }
    }
    if failed > 0 {
        tracing::info!(failed, "the disk takes records again");
    }
    group.done.into_iter().for_each(|DoneBox(done)| done());
}

/// What goes into one commit.
#[derive(Debug, Default)]
struct Group {
    keep: Vec<Keep>,
    /// Where in `keep` a job's record is: of several only the last is of any use.
    jobs: HashMap<JobId, usize>,
    done: Vec<DoneBox>,
    requests: usize,
}

impl Group {
    /// Adds a request. The numbers that only grow go to the fence.
    fn add(&mut self, (keep, done): (Keep, Option<DoneBox>), fence: &mut Fence) {
        self.requests += 1;
        self.done.extend(done);
        match keep {
            Keep::Term(term) => fence.raise(Incarnation(0), term),
            Keep::Incarnation(incarnation) => fence.raise(incarnation, Term(0)),
            keep => {
                // A job that is forgotten after its record was written must be forgotten last.
                let job = match &keep {
                    Keep::Job(record) => Some(record.spec.id),
                    Keep::ForgetJob(job) => Some(*job),
                    _ => None,
                };
                match job.and_then(|job| self.jobs.get(&job)) {
                    Some(at) => self.keep[*at] = keep,
                    None => {
                        self.jobs.extend(job.map(|job| (job, self.keep.len())));
                        self.keep.push(keep);
                    }
                }
            }
        }
    }

    fn write(&self, database: &mut Database, fence: &mut Fence) -> Result<(), StoreError> {
        let raised = fence.save()?;
        if raised || !self.keep.is_empty() {
            database.write(&self.keep, fence.incarnation(), fence.term())?;
        }
        Ok(())
    }
}

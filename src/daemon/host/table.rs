//! The tasks of this node that a stream may be about: running ones, and the last that ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::stdin::Stdin;
use crate::core::id::NodeId;
use crate::core::task::{Outcome, TaskId};
use crate::core::time::{Duration, WallTime};
use crate::run::{OutputReader, TaskControl, Tasks, Totals};

/// Ended tasks whose homes know it, and whose output is kept. The oldest go first.
const ENDED_MAX: usize = 256;

/// Ended tasks whose homes do not know it yet: a home that sleeps must not hear that its task is
/// unknown, for it would run it again.
const UNHEARD_MAX: usize = 1_024;

/// One task.
#[derive(Debug)]
pub(crate) struct Hosted {
    /// Which.
    pub(crate) task: TaskId,
    /// Who may see it.
    pub(crate) home: NodeId,
    /// When it was started, for people.
    pub(crate) since: WallTime,
    /// Its input.
    pub(crate) stdin: Stdin,
    /// Its keeper; none if it ended before this daemon was there.
    pub(crate) control: Option<TaskControl>,
    /// How much output there is.
    pub(crate) totals: watch::Receiver<Totals>,
    /// How it ended, and when, once it has.
    pub(crate) ended: watch::Receiver<Option<(Outcome, WallTime)>>,
    /// Where its output is.
    pub(crate) tasks: Tasks,
}

impl Hosted {
    /// Its standard output and standard error, opened for one reader.
    pub(super) fn outputs(&self) -> std::io::Result<(OutputReader, OutputReader)> {
        self.tasks.outputs(self.task).map_err(std::io::Error::other)
    }

    /// Forgets a task that has left the table.
    pub(crate) async fn forget(self: Arc<Self>) {
        let (task, tasks) = (self.task, self.tasks.clone());
        match Arc::into_inner(self) {
            Some(_) => tasks.recycle(task).await,
            // Somebody still reads its output, and must not come to read another's.
            None => tasks.forget(task).await,
        }
    }

    /// Ends it, if it has not ended.
    pub(super) async fn stop(&self, grace: Duration) {
        if let Some(control) = &self.control
            && let Err(error) = control.stop(grace).await
        {
            tracing::debug!(task = %self.task, %error, "a task is not stopped: it has ended");
        }
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tasks: Mutex<Known>,
    /// Wakes those who wait for a task that is being started.
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Known {
    known: BTreeMap<TaskId, Arc<Hosted>>,
    starting: BTreeSet<TaskId>,
    ended: VecDeque<TaskId>,
    unheard: VecDeque<TaskId>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { tasks: Mutex::default(), news: watch::channel(()).0 }
    }
}

impl Table {
    /// A task is about to be started.
    pub(crate) fn begin(&self, task: TaskId) {
        self.lock().starting.insert(task);
    }

    /// It could not be started.
    pub(crate) fn abandon(&self, task: TaskId) {
        self.lock().starting.remove(&task);
        self.0.news.send_replace(());
    }

    /// It runs, or has been found again.
    pub(crate) fn insert(&self, hosted: Arc<Hosted>) {
        let mut tasks = self.lock();
        tasks.starting.remove(&hosted.task);
        tasks.known.insert(hosted.task, hosted);
        drop(tasks);
        self.0.news.send_replace(());
    }

    /// It has ended; answers one whose outcome is to be given up for it.
    pub(crate) fn ended(&self, task: TaskId) -> Option<Arc<Hosted>> {
        let mut tasks = self.lock();
        tasks.unheard.push_back(task);
        if tasks.unheard.len() <= UNHEARD_MAX {
            return None;
        }
        let oldest = tasks.unheard.pop_front()?;
        tracing::warn!(task = %oldest, "an outcome is given up: its home has not asked for it");
        tasks.known.get(&oldest).cloned()
    }

    /// It has been given up.
    pub(crate) fn give_up(&self, task: TaskId) {
        self.lock().known.remove(&task);
    }

    /// Its home knows that it has ended; answers a task that is to be forgotten for it.
    pub(crate) fn heard(&self, task: TaskId) -> Option<Arc<Hosted>> {
        let mut tasks = self.lock();
        let at = tasks.unheard.iter().position(|unheard| *unheard == task)?;
        tasks.unheard.remove(at);
        tasks.ended.push_back(task);
        if tasks.ended.len() <= ENDED_MAX {
            return None;
        }
        let oldest = tasks.ended.pop_front()?;
        tasks.known.remove(&oldest)
    }

    /// A task that is known.
    pub(crate) fn find(&self, task: TaskId) -> Option<Arc<Hosted>> {
        self.lock().known.get(&task).cloned()
    }

    /// A task that is known, or will be when it has been started.
    pub(crate) async fn wait(&self, task: TaskId) -> Option<Arc<Hosted>> {
        let mut news = self.0.news.subscribe();
        loop {
            {
                let tasks = self.lock();
                if let Some(hosted) = tasks.known.get(&task) {
                    return Some(Arc::clone(hosted));
                }
                if !tasks.starting.contains(&task) {
                    return None;
                }
            }
            // The sender lives as long as the table.
            news.changed().await.ok()?;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing under the lock can panic half way.
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{Attempt, JobId};

    /// A home that slept for a minute, beside hundreds of tasks of others, ran its job again.
    #[test]
    fn what_a_home_has_not_heard_is_not_forgotten_for_what_others_have() {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::open(root.path().to_owned(), "/nonexistent".into()).unwrap();
        let table = Table::default();
        let task = |job| TaskId { job: JobId::from_bits(job), attempt: Attempt(1) };
        for job in 0..=300 {
            table.insert(Arc::new(Hosted {
                task: task(job),
                home: NodeId([7; 32]),
                since: WallTime(0),
                stdin: Stdin::new(0, watch::channel(0).1),
                control: None,
                totals: watch::channel(Totals::default()).1,
                ended: watch::channel(None).1,
                tasks: tasks.clone(),
            }));
        }
        let id = |hosted: Arc<Hosted>| hosted.task;
        assert_eq!(table.ended(task(0)).map(id), None);
        let mut forgotten = Vec::new();
        for number in 1..=300 {
            forgotten.extend(table.ended(task(number)).map(id));
            forgotten.extend(table.heard(task(number)).map(id));
            // Told twice is told once.
            assert_eq!(table.heard(task(number)).map(id), None);
        }
        assert_eq!(forgotten, (1..=44).map(task).collect::<Vec<_>>());
        assert_eq!(table.heard(task(0)).map(id), Some(task(45)));
    }
}

//! From a lease to a running task, and from a keeper that was found again to the same.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use tokio::sync::watch;

use super::home::Offer;
use super::host::{Hosted, Stdin, Table};
use super::inbox::{Inbox, Lease};
use crate::clock;
use crate::core::grant::Refusal;
use crate::core::id::NodeId;
use crate::core::ledger::{Input, LeaseRecord};
use crate::core::task::{Outcome, TaskId};
use crate::core::time::Duration;
use crate::run::environment::{Facts, Variable, environment};
use crate::run::{Event, Fate, Recovered, StartError, StartSpec, Task, Tasks, Totals};
use crate::wire::codec;

/// Starts tasks, and follows what becomes of them.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Where they are.
    pub(crate) tasks: Tasks,
    /// The core.
    pub(crate) inbox: Inbox,
    /// What streams find.
    pub(crate) table: Table,
    /// This node.
    pub(crate) me: NodeId,
    /// Its name.
    pub(crate) name: String,
    /// What tasks inherit.
    pub(crate) account: Vec<Variable>,
    /// Bytes kept of each output.
    pub(crate) output_max: u64,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

impl Launcher {
    /// Starts the task of a fresh lease. Whatever goes wrong, the lease is given back.
    pub(crate) async fn launch(&self, lease: Lease, offer: Offer) -> Result<Arc<Hosted>, Refusal> {
        let record = lease.record.clone();
        let task = record.task;
        self.table.begin(task);
        let hosted = match is_missing(offer.command.chdir.as_ref()).await {
            true => Err(Refusal::NoDirectory),
            false => match self.tasks.start(self.spec(&lease, offer)).await {
                Ok(started) => Ok(self.host(&record, started)),
                Err(StartError { why, elsewhere }) => Err(Refusal::CannotStart { why, elsewhere }),
            },
        };
        match hosted {
            Ok(hosted) => {
                self.inbox.ledger(Input::Started { task }).await;
                Ok(hosted)
            }
            Err(refusal) => {
                self.table.abandon(task);
                self.inbox.ledger(Input::Gone { task }).await;
                Err(refusal)
            }
        }
    }

    fn spec(&self, lease: &Lease, offer: Offer) -> StartSpec {
        let task = lease.record.task;
        let work = self.tasks.work(task);
        let facts = Facts {
            task,
            job_name: &offer.name,
            owner: &offer.owner,
            node_name: &self.name,
            node: self.me,
            home_name: &offer.home_name,
            gpus: &lease.gpus,
            work: &work,
            account: &self.account,
        };
        let user: Vec<Variable> =
            offer.command.env.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        StartSpec {
            task,
            about: codec::encode(&lease.record),
            env: environment(&facts, &user),
            command: offer.command,
            output_max: self.output_max,
            grace: self.grace,
        }
    }

    /// Takes up a running task: feeds its input, follows its end.
    fn host(&self, record: &LeaseRecord, task: Task) -> Arc<Hosted> {
        let Task { control, mut input, mut events, totals, stdin_received } = task;
        let (ended_in, ended) = watch::channel(None);
        let hosted = Arc::new(Hosted {
            task: record.task,
            home: record.home,
            since: record.since,
            stdin: Stdin::new(stdin_received, input.taken()),
            control: Some(control),
            totals,
            ended,
            tasks: self.tasks.clone(),
        });
        self.table.insert(Arc::clone(&hosted));
        let feed = Arc::clone(&hosted);
        tokio::spawn(async move {
            // Ends with the task: a keeper that is gone takes nothing.
            while let Some(bytes) = feed.stdin.next().await {
                if input.write(bytes).await.is_err() {
                    return;
                }
            }
            let _ = input.end().await;
        });
        let (inbox, table, tasks) = (self.inbox.clone(), self.table.clone(), self.tasks.clone());
        let (task, over) = (record.task, Arc::clone(&hosted));
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                match event {
                    Event::CommandEnded => inbox.ledger(Input::CommandEnded { task }).await,
                    Event::Stuck(why) => inbox.ledger(Input::Stuck { task, why }).await,
                    Event::Gone(outcome) => {
                        // The GPU first: whoever hears of the end may want it.
                        inbox.ledger(Input::Gone { task }).await;
                        ended_in.send_replace(Some((outcome, clock::wall())));
                        over.stdin.close();
                        tasks.prepare();
                        make_room(task, &inbox, &table).await;
                    }
                }
            }
        });
        hosted
    }

    /// Finds the tasks of before this start again: those that live keep their leases.
    pub(crate) async fn recover(&self) {
        self.tasks.prepare();
        for Recovered { task, about, fate, heard } in self.tasks.recover().await {
            let Ok(record) = codec::decode::<LeaseRecord>(&about) else {
                tracing::warn!(%task, "a task's record cannot be read; it is ended and forgotten");
                if let Fate::Alive(alive) = fate {
                    // It is going to be gone, one way or another.
                    let _ = alive.control.stop(Duration::ZERO).await;
                }
                continue;
            };
            match fate {
                Fate::Alive(alive) => {
                    tracing::info!(%task, "a running task is found again");
                    self.inbox.ledger(Input::Adopt(record.clone())).await;
                    self.host(&record, alive);
                }
                Fate::Ended(outcome, totals) => {
                    self.recall(task, &record, outcome, totals).await;
                    if let Some(oldest) = heard.then(|| self.table.heard(task)).flatten() {
                        oldest.forget().await;
                    }
                }
            }
        }
    }

    /// Keeps an outcome for a home that may not know it yet. When it ended, while there was no
    /// daemon, is not known better than that it was before now.
    async fn recall(&self, task: TaskId, record: &LeaseRecord, outcome: Outcome, totals: Totals) {
        self.table.insert(Arc::new(Hosted {
            task,
            home: record.home,
            since: record.since,
            stdin: Stdin::new(0, watch::channel(0).1),
            control: None,
            totals: watch::channel(totals).1,
            ended: watch::channel(Some((outcome, clock::wall()))).1,
            tasks: self.tasks.clone(),
        }));
        make_room(task, &self.inbox, &self.table).await;
    }
}

/// A task has ended: the outcome of another is given up for it, if that is one too many.
async fn make_room(task: TaskId, inbox: &Inbox, table: &Table) {
    if let Some(oldest) = table.ended(task) {
        let (task, home) = (oldest.task, oldest.home);
        // In this order: whoever does not find it any more hears that it was here.
        inbox.ledger(Input::GivenUp { task, home }).await;
        table.give_up(task);
        oldest.forget().await;
    }
}

/// Whether a task is to run in a directory that is not there, or that the daemon may not see.
async fn is_missing(directory: Option<&serde_bytes::ByteBuf>) -> bool {
    let Some(directory) = directory else { return false };
    let found = tokio::fs::metadata(OsStr::from_bytes(directory)).await;
    !found.is_ok_and(|found| found.is_dir())
}

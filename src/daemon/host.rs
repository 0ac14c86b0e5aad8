//! The node's side of a task stream: present the grant to the ledger, start, stream, end.
//!
//! One tokio task for each stream. Nothing here decides whether a GPU is taken (the ledger does)
//! or keeps a process alive (its keeper does): a stream that breaks takes nothing with it, and the
//! next one finds the task in the [`Tasks`] table.

mod pump;
mod stdin;
mod table;

use std::sync::Arc;

use self::pump::Pump;
pub(crate) use self::stdin::Stdin;
pub(crate) use self::table::{Hosted, Table};
use super::home::Offer;
use super::inbox::{Answer, Inbox, Offered};
use super::launch::Launcher;
use super::stream::{Reader, StreamError, TaskStream, Writer, split};
use crate::clock;
use crate::core::id::NodeId;
use crate::core::ledger::Trace;
use crate::core::task::{Outcome, TaskId};
use crate::core::time::Duration;
use crate::wire::task::{Frame, Offsets, ToHome, ToNode};

/// How long a stream may take to say what it is for, and how long an outcome's acknowledgement is
/// waited for on the stream that carried it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who opened a stream, and what they may do.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The node at the other end.
    pub(crate) node: NodeId,
    /// Whether its membership allows it to submit.
    pub(crate) may_submit: bool,
    /// The user whose jobs are its, if its membership names one.
    pub(crate) user: Option<String>,
}

impl Caller {
    /// Whose a job is that it brings: whoever proves a user speaks for that one, and nobody else.
    fn owner(&self, claimed: String) -> String {
        self.user.clone().unwrap_or(claimed)
    }
}

/// What serving a stream needs.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The core.
    pub(crate) inbox: Inbox,
    /// The tasks of this node.
    pub(crate) table: Table,
    /// What starts them.
    pub(crate) launcher: Arc<Launcher>,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
}

impl Host {
    /// Serves one stream until either side has had enough of it.
    pub(crate) async fn serve(self, caller: Caller, stream: TaskStream) {
        let (mut reader, writer) = split(stream);
        let first = match tokio::time::timeout(PATIENCE, reader.next::<ToNode>()).await {
            Ok(Ok(Frame::Control(first))) => first,
            Ok(Ok(Frame::Data { .. })) => {
                tracing::debug!(peer = ?caller.node, "a task stream began with data");
                return;
            }
            Ok(Err(error)) => {
                tracing::debug!(peer = ?caller.node, %error, "a task stream ended before it began");
                return;
            }
            Err(_elapsed) => {
                tracing::debug!(peer = ?caller.node, "a task stream never said what it is for");
                return;
            }
        };
        let end = match first {
            ToNode::Open { grant, owner, name, home_name, command, follow } => {
                let owner = caller.owner(owner);
                let offer = Offer { grant, owner, name, home_name, command };
                self.open(&caller, offer, follow, reader, writer).await
            }
            ToNode::Attach { task, follow } => {
                self.attach(&caller, task, follow, reader, writer).await
            }
            ToNode::View { task, stdout, stderr, follow } => {
                self.view(&caller, task, (stdout, stderr), follow, reader, writer).await
            }
            ToNode::Acknowledge | ToNode::StdinEof | ToNode::Stop { .. } => {
                Err(StreamError::Protocol("a task stream began in its middle"))
            }
        };
        if let Err(error) = end {
            tracing::debug!(peer = ?caller.node, %error, "a task stream ended");
        }
    }

    async fn open(
        &self,
        caller: &Caller,
        offer: Offer,
        follow: bool,
        reader: Reader,
        mut writer: Writer,
    ) -> Result<(), StreamError> {
        let task = TaskId { job: offer.grant.value().job, attempt: offer.grant.value().attempt };
        let answer = self
            .inbox
            .offer(Offered {
                from: caller.node,
                may_submit: caller.may_submit,
                grant: offer.grant.clone(),
                owner: offer.owner.clone(),
                name: offer.name.clone(),
            })
            .await
            .ok_or(StreamError::Closed)?;
        let hosted = match answer {
            Answer::Refused(refusal) => {
                writer.control(&ToHome::Refused(refusal)).await?;
                writer.close().await;
                return Ok(());
            }
            // It was accepted before, by an offer whose answer was lost: starting is idempotent.
            // Between its lease and its start it is not in the table yet: the home asks again.
            Answer::Resume => Ok(self.table.wait(task).await.ok_or(StreamError::Closed)?),
            Answer::Accepted(lease) => self.launcher.launch(lease, offer).await,
        };
        let hosted = match hosted {
            Ok(hosted) => hosted,
            Err(refusal) => {
                writer.control(&ToHome::Refused(refusal)).await?;
                writer.close().await;
                return Ok(());
            }
        };
        writer.control(&ToHome::Accepted { since: hosted.since }).await?;
        let follow = follow.then(Offsets::default);
        self.stream(hosted, follow, reader, writer).await
    }

    async fn attach(
        &self,
        caller: &Caller,
        task: TaskId,
        follow: Option<Offsets>,
        reader: Reader,
        mut writer: Writer,
    ) -> Result<(), StreamError> {
        let ended = self.table.find(task);
        // The ledger is asked, so that an offer of this very attempt that is still on its way can
        // not be accepted after the home was told that nobody knows it.
        let trace = self.inbox.trace(task, caller.node).await.ok_or(StreamError::Closed)?;
        let hosted = match (trace, ended) {
            // Between its lease and its start it is not in the table yet: the home asks again.
            (Trace::Leased, _) => Some(self.table.wait(task).await.ok_or(StreamError::Closed)?),
            (_, Some(ended)) => Some(ended),
            (Trace::GivenUp, None) => return self.own_up(task, reader, writer).await,
            (Trace::Nothing, None) => self.table.find(task),
        };
        let Some(hosted) = hosted.filter(|hosted| hosted.home == caller.node) else {
            writer.control(&ToHome::Unknown).await?;
            writer.close().await;
            return Ok(());
        };
        let (since, stdin_received) = (hosted.since, hosted.stdin.received());
        let stdin_taken = *hosted.stdin.taken().borrow();
        writer.control(&ToHome::Attached { since, stdin_taken, stdin_received }).await?;
        self.stream(hosted, follow, reader, writer).await
    }

    /// Its home comes back for a task whose outcome has been given up.
    async fn own_up(
        &self,
        task: TaskId,
        mut reader: Reader,
        mut writer: Writer,
    ) -> Result<(), StreamError> {
        let why = "its outcome was kept for its home for as long as there was room".to_owned();
        let outcome = Outcome::Lost { why };
        writer.control(&ToHome::Ended { outcome, at: clock::wall() }).await?;
        let answer = tokio::time::timeout(PATIENCE, reader.next::<ToNode>()).await;
        if let Ok(Frame::Control(ToNode::Acknowledge)) = answer.unwrap_or(Err(StreamError::Closed))
        {
            self.inbox.acknowledged(task).await;
        }
        Ok(())
    }

    /// Both directions of a home's stream, until the task has ended and its home knows it.
    async fn stream(
        &self,
        hosted: Arc<Hosted>,
        follow: Option<Offsets>,
        reader: Reader,
        mut writer: Writer,
    ) -> Result<(), StreamError> {
        let wanted = (follow.map(|at| at.stdout), follow.map(|at| at.stderr));
        let pump = Pump::new(Arc::clone(&hosted), wanted, true)?;
        let credit = hosted.stdin.taken();
        tokio::select! {
            // Reads to the acknowledgement, or to the end of the stream.
            end = self.orders(&hosted, reader) => end,
            end = async {
                pump.run(&mut writer, Some(credit)).await?;
                tokio::time::sleep(PATIENCE).await;
                Ok(())
            } => end,
        }
    }

    /// What the home says while the task runs.
    async fn orders(&self, hosted: &Arc<Hosted>, mut reader: Reader) -> Result<(), StreamError> {
        loop {
            match reader.next::<ToNode>().await? {
                Frame::Data { output: None, offset, bytes } => {
                    hosted.stdin.push(offset, &bytes)?;
                }
                Frame::Data { .. } => return Err(StreamError::Protocol("a home sent output")),
                Frame::Control(ToNode::StdinEof) => hosted.stdin.end(),
                Frame::Control(ToNode::Stop { now }) => {
                    let grace = if now { Duration::ZERO } else { self.grace };
                    hosted.stop(grace).await;
                }
                Frame::Control(ToNode::Acknowledge) => {
                    self.inbox.acknowledged(hosted.task).await;
                    hosted.tasks.mark_heard(hosted.task).await;
                    if let Some(oldest) = self.table.heard(hosted.task) {
                        oldest.forget().await;
                    }
                    return Ok(());
                }
                Frame::Control(_) => return Err(StreamError::Protocol("a second beginning")),
            }
        }
    }

    async fn view(
        &self,
        caller: &Caller,
        task: TaskId,
        (stdout, stderr): (Option<u64>, Option<u64>),
        follow: bool,
        mut reader: Reader,
        mut writer: Writer,
    ) -> Result<(), StreamError> {
        let Some(hosted) = self.table.find(task).filter(|hosted| hosted.home == caller.node) else {
            writer.control(&ToHome::Unknown).await?;
            writer.close().await;
            return Ok(());
        };
        let pump = Pump::new(hosted, (stdout, stderr), follow)?;
        let end = tokio::select! {
            end = pump.run(&mut writer, None) => end,
            // A viewer says nothing more; that it has gone is the news.
            end = reader.next::<ToNode>() => end.map(drop),
        };
        writer.close().await;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_whose_membership_names_a_user_speaks_for_no_other() {
        let owner = |user: Option<&str>| {
            let user = user.map(str::to_owned);
            Caller { node: NodeId([1; 32]), may_submit: true, user }.owner("bob".into())
        };
        assert_eq!((owner(None), owner(Some("ada"))), ("bob".into(), "ada".into()));
    }
}

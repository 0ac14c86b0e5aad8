//! What the core wants done, done: messages, streams, records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::home::{self, Attachment, First, ORDERS_MAX, Offer, Order};
use super::host::{Caller, Host};
use super::inbox::{Inbox, Request};
use super::own::Own;
use super::stream::{TaskStream, pipe};
use crate::core::grant::Refusal;
use crate::core::id::{JobId, NodeId};
use crate::core::job::{self, JobRecord};
use crate::core::rights::Rights;
use crate::core::task::TaskId;
use crate::core::time::Duration;
use crate::net::{self, NetError};
use crate::store::{Keep, Store};

/// How long a stream waits for a link that is being dialled.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// Whom there are links with, and how often dials of the others have failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    pub(crate) open: BTreeSet<NodeId>,
    pub(crate) failed: BTreeMap<NodeId, u64>,
}

impl Links {
    fn failures(&self, node: NodeId) -> u64 {
        self.failed.get(&node).copied().unwrap_or(0)
    }
}

/// Opens streams about tasks, to other nodes and to this one.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) me: NodeId,
    /// What this node's own membership allows.
    pub(crate) own: Arc<Own>,
    pub(crate) net: net::Handle,
    pub(crate) host: Host,
    /// Whom there are links with.
    pub(crate) links: watch::Receiver<Links>,
}

impl Streams {
    /// Opens a stream to a node; to this node itself without any network.
    pub(crate) async fn open(&self, node: NodeId) -> Result<TaskStream, NetError> {
        if node == self.me {
            let (near, far) = pipe();
            let may_submit = self.own.may_submit().is_ok();
            let caller = Caller { node, may_submit, user: self.own.user() };
            tokio::spawn(self.host.clone().serve(caller, far));
            return Ok(near);
        }
        let mut links = self.links.clone();
        let before = links.borrow().failures(node);
        let linked =
            links.wait_for(|links| links.open.contains(&node) || links.failures(node) > before);
        // A link that does not come is what opening tells, in its own words.
        let _ = tokio::time::timeout(LINK_WAIT, linked).await;
        Ok(Box::new(self.net.open_task(node).await?))
    }

    /// Why the first word may not be said on an open stream, if so.
    fn bars(&self, node: NodeId, first: &First) -> Option<Refusal> {
        // Its own ledger knows it of this node.
        let rights = if node == self.me { Some(Rights::ALL) } else { self.net.rights(node) };
        bars(rights, first)
    }
}

/// The hands of one daemon.
#[derive(Debug)]
pub(crate) struct Hands {
    pub(crate) streams: Streams,
    pub(crate) store: Arc<Store>,
    pub(crate) inbox: Inbox,
    /// This node's name.
    pub(crate) name: String,
    /// The streams of jobs that have not ended.
    pub(crate) homes: BTreeMap<JobId, mpsc::Sender<Order>>,
    /// Users who watch jobs that have no stream yet.
    pub(crate) attachments: BTreeMap<JobId, Attachment>,
}

impl Hands {
    /// Performs an effect of the jobs. `find` looks a job's record up.
    pub(crate) fn perform(
        &mut self,
        effect: job::Effect,
        find: impl Fn(JobId) -> Option<JobRecord>,
    ) {
        match effect {
            job::Effect::Acknowledge { task } => {
                if let Some(orders) = self.homes.remove(&task.job) {
                    // Without a stream the node keeps the outcome until it is asked or prunes it.
                    let _ = orders.try_send(Order::Acknowledge);
                }
            }
            job::Effect::Attach { task, node } => self.connect(task, node, First::Attach),
            job::Effect::Forget(job) => self.store.keep(Keep::ForgetJob(job), None::<fn()>),
            job::Effect::Offer { task, grant } => {
                let Some(record) = find(task.job) else { return };
                let node = grant.value().node;
                let offer = Offer {
                    grant,
                    owner: record.spec.owner,
                    name: record.spec.name,
                    home_name: self.name.clone(),
                    command: record.spec.command,
                };
                self.connect(task, node, First::Open(Box::new(offer)));
            }
            job::Effect::Stop { task, now } => self.order(task.job, Order::Stop { now }),
            job::Effect::Store(record) => self.store(record),
            // The core turns these into messages, the driver tells those who watch.
            job::Effect::Changed(_) | job::Effect::Control(_) | job::Effect::Present(_) => {}
        }
    }

    /// A job will not change any more; `ran` if its node is to be told.
    pub(crate) fn ended(&mut self, job: JobId, ran: bool) {
        self.attachments.remove(&job);
        if !ran {
            self.homes.remove(&job);
        }
    }

    fn store(&self, record: Box<JobRecord>) {
        let (job, inbox) = (record.spec.id, self.inbox.clone());
        let ended = matches!(record.state, job::JobState::Ended { .. });
        let done = move || inbox.tell_blocking(Request::JobStored { job, ended });
        self.store.keep(Keep::Job(record), Some(done));
    }

    fn connect(&mut self, task: TaskId, node: NodeId, first: First) {
        let (streams, inbox) = (self.streams.clone(), self.inbox.clone());
        let orders = self.home(task.job);
        tokio::spawn(async move {
            // A grant that has run out is not presented: the controller counts on its GPUs again.
            let limit = match &first {
                First::Open(offer) => Duration::from_millis(u64::from(offer.grant.value().ttl_ms)),
                First::Attach => Duration::MAX,
            };
            let open = tokio::time::timeout(limit, streams.open(node));
            match open.await.unwrap_or(Err(NetError::Timeout)) {
                Ok(stream) => match streams.bars(node, &first) {
                    // As if the node had said so: the controller is told, and chooses another.
                    Some(refusal) => inbox.job(job::Input::Refused { task, refusal }).await,
                    // A job that has ended meanwhile has nobody to take it.
                    None => _ = orders.send(Order::Connected { task, stream, first }).await,
                },
                Err(error) => {
                    let why = error.to_string();
                    inbox.job(job::Input::Unreachable { task, why }).await;
                }
            }
        });
    }

    fn order(&mut self, job: JobId, order: Order) {
        // Orders are few; one that finds no room is repeated by its user or the core.
        if let Err(error) = self.home(job).try_send(order) {
            tracing::debug!(%job, %error, "an order to a job's stream is dropped");
        }
    }

    /// The stream of a job, made at the first need.
    fn home(&mut self, job: JobId) -> mpsc::Sender<Order> {
        if let Some(orders) = self.homes.get(&job).filter(|orders| !orders.is_closed()) {
            return orders.clone();
        }
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let attachment = self.attachments.remove(&job);
        tokio::spawn(home::run(attachment, receiver, self.inbox.clone()));
        self.homes.insert(job, orders.clone());
        orders
    }
}

/// A task is never sent to a member that may not run tasks, whatever the controller granted. What
/// runs there already is followed to its end.
fn bars(rights: Option<Rights>, first: &First) -> Option<Refusal> {
    let is_new = matches!(first, First::Open(_));
    (is_new && rights.is_none_or(|rights| !rights.node)).then(|| Refusal::CannotStart {
        why: "the node's membership does not allow it to run tasks".into(),
        elsewhere: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::control::OrderKey;
    use crate::core::grant::Grant;
    use crate::core::id::{Attempt, Incarnation, Term};
    use crate::core::signed::Key;
    use crate::core::task::Command;

    #[test]
    fn a_task_goes_to_nobody_who_may_not_run_it() {
        let key = Key::from_seed(&[1; 32]);
        let grant = Grant {
            term: Term(1),
            job: JobId::from_bits(1),
            attempt: Attempt(1),
            home: key.id(),
            node: key.id(),
            incarnation: Incarnation(1),
            gpus: Vec::new(),
            key: OrderKey::default(),
            ttl_ms: 1_000,
        };
        let first = First::Open(Box::new(Offer {
            grant: key.sign(grant),
            owner: "o".into(),
            name: "n".into(),
            home_name: "h".into(),
            command: Command::default(),
        }));
        let guest = Some(Rights { node: false, submit: true });
        assert_eq!(bars(Some(Rights::ALL), &first), None);
        for rights in [guest, None] {
            let refusal = bars(rights, &first);
            assert!(matches!(refusal, Some(Refusal::CannotStart { elsewhere: true, .. })));
            assert_eq!(bars(rights, &First::Attach), None);
        }
    }
}

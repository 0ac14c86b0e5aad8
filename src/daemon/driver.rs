//! Drives the core: what happens goes in, what it wants done comes out.
//!
//! One task, one loop, no locks. It waits for nobody: everything that takes time is done by others,
//! who tell it through the inbox.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use libp2p::Multiaddr;
use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;
use tokio::sync::{mpsc, oneshot, watch};

use super::hands::{Hands, Links};
use super::host::Caller;
use super::inbox::{Answer, Draft, Found, Lease, Look, NotFound, Request, Submitted};
use super::notes::Notes;
use super::sieve::Sieve;
use super::views;
use crate::api::JobView;
use crate::clock;
use crate::core::id::{JobId, NodeId};
use crate::core::job::{self, JobSpec, JobState};
use crate::core::ledger;
use crate::core::node::{Effect, Input, Node};
use crate::core::outbox::Outbox;
use crate::core::report::Gpu;
use crate::core::time::{Duration, Instant, earliest};
use crate::net::Event;
use crate::store::Keep;

/// How long changes of addresses are collected before they are written.
const KEEP_AFTER: Duration = Duration::from_millis(50);

/// Jobs named when a beginning fits several.
const NAMED_MAX: usize = 10;

/// The driver of one node.
pub(super) struct Driver {
    pub(super) node: Node,
    pub(super) hands: Hands,
    pub(super) sieve: Sieve,
    pub(super) rng: ChaCha12Rng,
    pub(super) mesh: String,
    pub(super) started: Instant,
    pub(super) notes: Notes,
    /// Whom there are links with, for those who open streams.
    pub(super) links: watch::Sender<Links>,
    /// Counts changes, for those who wait for one.
    pub(super) changes: watch::Sender<u64>,
    /// Who watches which job.
    pub(super) watchers: BTreeMap<JobId, watch::Sender<JobView>>,
    /// Grants that are presented and not answered yet.
    pub(super) offers: BTreeMap<u64, oneshot::Sender<Answer>>,
    pub(super) offers_made: u64,
    /// Addresses of peers as they are on disk, and when they are compared next.
    pub(super) kept: BTreeMap<NodeId, Vec<String>>,
    pub(super) keep_at: Option<Instant>,
}

impl Driver {
    /// Runs until the node has left.
    ///
    /// # Errors
    /// If it wanted to join and was refused for good: the sentence for its user.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        mut requests: mpsc::Receiver<Request>,
    ) -> Result<(), String> {
        self.prove();
        // What was found again comes before anything that others say.
        while let Ok(request) = requests.try_recv() {
            self.on_request(request);
        }
        loop {
            let deadline = earliest([self.node.deadline(), self.keep_at]);
            tokio::select! {
                Some(event) = events.recv() => self.on_event(event)?,
                Some(request) = requests.recv() => {
                    if matches!(request, Request::Leave) {
                        break;
                    }
                    self.on_request(request);
                }
                () = clock::sleep_until(deadline) => self.on_deadline(),
            }
        }
        self.input(Input::Leave);
        // Nobody hears them any more; and a swarm that waits for room does not hear its stop.
        drop(events);
        self.hands.streams.net.stop().await;
        Ok(())
    }

    fn on_deadline(&mut self) {
        self.input(Input::Deadline);
        if self.keep_at.is_some_and(|at| at <= clock::now()) {
            self.keep_at = None;
            self.keep_peers();
        }
    }

    /// One input to the core, and all that it causes.
    pub(super) fn input(&mut self, input: Input) {
        let mut out = Outbox::new();
        tracing::trace!(?input, "in");
        self.node.handle(input, clock::now(), clock::wall(), &mut out);
        while let Some(effect) = out.pop() {
            tracing::trace!(?effect, "out");
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        let net = &self.hands.streams.net;
        match effect {
            Effect::Dial(node, addresses) => net.dial(node, parse(&addresses)),
            Effect::DialAddress(address) => {
                parse(&[address]).into_iter().for_each(|address| net.dial_address(address));
            }
            Effect::Followed(reign) => {
                let name = views::name(&self.node, reign.controller);
                let term = reign.term.0;
                tracing::info!(controller = name, term, "this controller is followed now");
                self.changed();
            }
            Effect::Gossip(message) => net.gossip(message),
            Effect::Hangup(node) => net.hangup(node),
            Effect::Job(job::Effect::Changed(job)) => self.on_job_changed(job),
            Effect::Job(effect) => {
                let node = &self.node;
                self.hands.perform(effect, |job| node.jobs().find(job).cloned());
            }
            Effect::Ledger(effect) => self.answer(effect),
            Effect::MeshChanged => {
                self.changed();
                self.keep_at.get_or_insert_with(|| clock::now() + KEEP_AFTER);
            }
            Effect::Send(to, message) => net.send(to, message),
            Effect::StoreIncarnation(number) => {
                self.hands.store.keep(Keep::Incarnation(number), None::<fn()>);
            }
            Effect::StoreSeniority(place) => {
                if self.notes.joined() {
                    tracing::info!(mesh = self.mesh, "admitted: this node is a member now");
                }
                self.hands.store.keep(Keep::Seniority(place), None::<fn()>);
            }
            Effect::StoreTerm(term) => {
                let inbox = self.hands.inbox.clone();
                let done = move || inbox.tell_blocking(Request::TermStored(term));
                self.hands.store.keep(Keep::Term(term), Some(done));
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::DialFailed { peer, tried } => self.on_dial_failed(peer, tried),
            Event::Discovered { peer, address } => {
                self.input(Input::Discovered(peer, vec![address.to_string()]));
            }
            Event::Gossiped(message) => self.hear(Input::Gossiped(message)),
            Event::Linked { peer, rights, address } => {
                tracing::info!(peer = %peer.short(), %address, "linked");
                self.links.send_modify(|links| {
                    links.failed.remove(&peer);
                    links.open.insert(peer);
                });
                self.prove();
                self.input(Input::Recognized(peer, rights));
                self.input(Input::Linked(peer));
            }
            Event::Listening(addresses) => self.input(Input::Addresses(dialable(&addresses))),
            Event::Received(from, message) => self.hear(Input::Received(from, message)),
            Event::Refused { peer, address, why } => {
                self.notes.refused(peer, &address, &why)?;
                self.changed();
            }
            Event::TaskStream { from, admitted, stream } => {
                let may_submit = admitted.rights.submit;
                let caller = Caller { node: from, may_submit, user: admitted.user };
                let host = self.hands.streams.host.clone();
                tokio::spawn(host.serve(caller, Box::new(stream)));
            }
            Event::Unlinked(peer) => {
                tracing::info!(peer = %peer.short(), "the link is gone");
                self.links.send_if_modified(|links| links.open.remove(&peer));
                self.input(Input::Unlinked(peer));
            }
        }
        Ok(())
    }

    fn on_dial_failed(&mut self, peer: Option<NodeId>, tried: Vec<(Multiaddr, String)>) {
        if let Some(news) = self.notes.failed(tried) {
            tracing::warn!("{news}");
            self.changed();
        }
        if let Some(peer) = peer {
            self.links.send_modify(|links| *links.failed.entry(peer).or_default() += 1);
            self.input(Input::DialFailed(peer));
        }
    }

    /// What others say, as far as they are members.
    fn hear(&mut self, said: Input) {
        for input in self.sieve.sift(&self.node, said) {
            self.input(input);
        }
        for node in self.sieve.take_expelled() {
            self.hands.streams.net.hangup(node);
        }
    }

    /// Shows everybody this node's membership as it is now: when a member has endorsed it, it is
    /// another.
    fn prove(&mut self) {
        let proof = self.sieve.proof();
        if self.node.report().proof != proof {
            self.input(Input::Proof(proof));
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Cancel { job, now } => self.input(Input::Job(job::Input::Cancel { job, now })),
            Request::Gpus(reading) => {
                let gpus: Vec<Gpu> = reading.gpus.into_iter().map(Gpu::from).collect();
                self.input(Input::Inventory(gpus, reading.note));
            }
            Request::Job(input) => self.input(Input::Job(input)),
            Request::JobStored { job, ended } => {
                self.input(Input::Job(job::Input::Stored { job, ended }));
            }
            Request::Trace { task, home, reply } => {
                let trace = self.node.ledger().trace(task, home);
                if trace == ledger::Trace::Nothing {
                    self.input(Input::Ledger(ledger::Input::Forswear { task }));
                }
                let _ = reply.send(trace);
            }
            // Handled by the loop.
            Request::Leave => {}
            Request::Ledger(input) => self.input(Input::Ledger(input)),
            Request::Look(look) => self.look(look),
            Request::MemoryFree(bytes) => self.input(Input::MemoryFree(bytes)),
            Request::Offer { offered, reply } => {
                self.offers_made += 1;
                let offer = ledger::Offer {
                    offer: self.offers_made,
                    from: offered.from,
                    may_submit: offered.may_submit,
                    grant: offered.grant,
                    owner: offered.owner,
                    name: offered.name,
                    follows: self.node.election().reign(),
                    at: clock::wall(),
                };
                self.offers.insert(self.offers_made, reply);
                self.input(Input::Ledger(ledger::Input::Offer(Box::new(offer))));
            }
            Request::Submit { draft, reply } => {
                // An attached run ends with its user, also with one who is gone already.
                if let Err(Ok(Submitted { job, .. })) = reply.send(self.submit(*draft)) {
                    self.input(Input::Job(job::Input::Cancel { job, now: false }));
                }
            }
            Request::TermStored(term) => self.input(Input::TermStored(term)),
        }
    }

    fn answer(&mut self, effect: ledger::Effect) {
        let (offer, answer) = match effect {
            ledger::Effect::Accept { offer, lease, gpus } => {
                (offer, Answer::Accepted(Lease { record: lease, gpus }))
            }
            ledger::Effect::Refuse { offer, refusal } => {
                tracing::debug!(?refusal, "a grant is refused");
                (offer, Answer::Refused(refusal))
            }
            ledger::Effect::Resume { offer, .. } => (offer, Answer::Resume),
            ledger::Effect::Changed => return,
        };
        let Some(reply) = self.offers.remove(&offer) else { return };
        // Whoever offered is gone: what was leased is given back, for nothing was started.
        if let Err(Answer::Accepted(lease)) = reply.send(answer) {
            let task = lease.record.task;
            self.input(Input::Ledger(ledger::Input::Gone { task }));
        }
    }

    fn submit(&mut self, draft: Draft) -> Result<Submitted, String> {
        if !self.node.jobs().has_room() {
            return Err(format!(
                "this node has {} jobs that have not ended: no more are taken on",
                job::UNENDED_MAX
            ));
        }
        if let Some(why) = self.notes.not_admitted() {
            return Err(format!("this node cannot submit: {why}"));
        }
        let mut need = draft.need;
        if let Some(name) = &draft.node {
            need.node = Some(self.resolve(name)?);
        }
        let id = self.new_id();
        let spec = JobSpec {
            id,
            owner: draft.owner,
            name: draft.name,
            need,
            command: draft.command,
            submitted: clock::wall(),
        };
        if let Some(attachment) = draft.attachment {
            self.hands.attachments.insert(id, attachment);
        }
        self.input(Input::Job(job::Input::Submit(Box::new(spec))));
        let changes = self.watch(id).ok_or("the job was not taken on")?;
        Ok(Submitted { job: id, changes })
    }

    /// An id that no job here has.
    fn new_id(&mut self) -> JobId {
        loop {
            let id = JobId::from_bits(self.rng.random());
            if self.node.jobs().find(id).is_none() {
                return id;
            }
        }
    }

    /// The node that a user means: by name, id, or the end of an id.
    fn resolve(&self, name: &str) -> Result<NodeId, String> {
        let fits = |(id, entry): &(NodeId, &crate::core::directory::Entry)| {
            let text = id.to_string();
            entry.report().name == name || text == name || id.short() == name
        };
        let found: Vec<NodeId> =
            self.node.directory().iter().filter(fits).map(|(id, _)| id).collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => {
                let known: Vec<&str> = self
                    .node
                    .directory()
                    .iter()
                    .take(NAMED_MAX)
                    .map(|(_, entry)| entry.report().name.as_str())
                    .collect();
                Err(format!("there is no node `{name}`; there are: {}", known.join(", ")))
            }
            several => Err(format!(
                "{} nodes are called `{name}`: name one by its id, as `gpuvine nodes` shows",
                several.len()
            )),
        }
    }

    fn look(&mut self, look: Look) {
        // Whoever asked may be gone; then nobody needs the answer.
        match look {
            Look::Gpus(reply) => drop(reply.send(views::gpus(&self.node))),
            Look::Job { prefix, reply } => drop(reply.send(self.find(&prefix))),
            Look::Jobs { all, reply } => drop(reply.send(views::jobs(&self.node, all))),
            Look::Nodes(reply) => drop(reply.send(views::nodes(&self.node))),
            Look::Status(reply) => {
                let up = clock::now().since(self.started);
                let status = views::status(&self.node, self.mesh.clone(), up, self.notes.all());
                drop(reply.send(status));
            }
        }
    }

    fn find(&mut self, prefix: &str) -> Result<Found, NotFound> {
        let prefix = prefix.to_ascii_lowercase();
        let fits = |id: &JobId| !prefix.is_empty() && id.to_string().starts_with(&prefix);
        let found: Vec<JobId> =
            self.node.jobs().iter().map(|record| record.spec.id).filter(fits).collect();
        let id = match found.as_slice() {
            [one] => *one,
            [] => return Err(NotFound::Unknown),
            several => {
                return Err(NotFound::Ambiguous(several.iter().copied().take(NAMED_MAX).collect()));
            }
        };
        let changes = self.watch(id).ok_or(NotFound::Unknown)?;
        let record = self.node.jobs().find(id).cloned().ok_or(NotFound::Unknown)?;
        let view = views::job(&self.node, &record);
        Ok(Found { record, view, changes })
    }

    /// The job as it changes.
    fn watch(&mut self, job: JobId) -> Option<watch::Receiver<JobView>> {
        let view = views::job(&self.node, self.node.jobs().find(job)?);
        let watcher = self.watchers.entry(job).or_insert_with(|| watch::channel(view).0);
        Some(watcher.subscribe())
    }

    fn on_job_changed(&mut self, job: JobId) {
        self.changed();
        let Some(record) = self.node.jobs().find(job) else { return };
        let ran = match &record.state {
            // One that was lost on its way has no node to be told.
            JobState::Ended { place, .. } => Some(place.is_some()),
            JobState::Rejected { .. } => Some(false),
            _ => None,
        };
        if let Some(watcher) = self.watchers.get(&job) {
            watcher.send_replace(views::job(&self.node, record));
            if watcher.is_closed() || ran.is_some() {
                self.watchers.remove(&job);
            }
        }
        if let Some(ran) = ran {
            self.hands.ended(job, ran);
        }
    }

    fn changed(&mut self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Remembers where members are, so that a restart needs no ticket.
    fn keep_peers(&mut self) {
        for report in self.node.directory().alive().filter(|report| report.node != self.node.id()) {
            if self.kept.get(&report.node) != Some(&report.addresses) {
                self.kept.insert(report.node, report.addresses.clone());
                let keep = Keep::Peer(report.node, report.addresses.clone());
                self.hands.store.keep(keep, None::<fn()>);
            }
        }
    }
}

fn parse(addresses: &[String]) -> Vec<Multiaddr> {
    let parse = |address: &String| match Multiaddr::from_str(address) {
        Ok(address) => Some(address),
        Err(error) => {
            tracing::debug!(address, %error, "not an address");
            None
        }
    };
    addresses.iter().filter_map(parse).collect()
}

/// Addresses worth telling others: none of the machine's own, if there are others.
fn dialable(addresses: &[Multiaddr]) -> Vec<String> {
    let far: Vec<&Multiaddr> =
        addresses.iter().filter(|address| !crate::net::is_loopback(address)).collect();
    match far.is_empty() {
        true => addresses.iter().map(ToString::to_string).collect(),
        false => far.into_iter().map(ToString::to_string).collect(),
    }
}

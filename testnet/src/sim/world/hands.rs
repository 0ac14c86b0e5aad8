//! What the core wants done, done: as `daemon::driver` and `daemon::hands` do it.

use gpuvine::core::control::{self, OrderKey};
use gpuvine::core::id::Term;
use gpuvine::core::job::{self, JobState};
use gpuvine::core::ledger;
use gpuvine::core::message::Message;
use gpuvine::core::node::{Effect, Input};
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::disk::{Write, is_end};
use crate::sim::invariants::Fact;
use crate::sim::network::Cargo;
use crate::sim::options::Fault;
use crate::sim::sabotage::Sabotage;
use crate::sim::streams::First;

/// How long the store collects before it commits.
const GROUP_WAIT: Duration = Duration::from_millis(10);

impl World {
    pub(super) fn perform(&mut self, machine: usize, effect: Effect) {
        match effect {
            Effect::Dial(node, addresses) => self.dial_node(machine, node, &addresses),
            Effect::DialAddress(address) => self.dial_address(machine, &address),
            Effect::Followed(reign) => {
                let to = self.ids.get(&reign.controller).copied().unwrap_or(usize::MAX);
                self.say(machine, "follows", format_args!("n{to} in term {}", reign.term));
                if self.sabotage == Some(Sabotage::ControllersKill) {
                    self.stop_all(machine);
                }
            }
            Effect::Gossip(gossip) => self.gossip(machine, &gossip),
            Effect::Hangup(node) => {
                for link in self.links_to(machine, node) {
                    self.reset(link, None);
                }
            }
            Effect::Job(effect) => self.perform_job(machine, effect),
            Effect::Ledger(effect) => self.perform_ledger(machine, effect),
            Effect::MeshChanged => self.keep_peers(machine),
            Effect::Send(to, message) => self.transmit(machine, to, message),
            Effect::StoreIncarnation(number) => self.store(machine, Write::Incarnation(number)),
            Effect::StoreSeniority(place) => self.store(machine, Write::Seniority(place)),
            Effect::StoreTerm(term) => self.store(machine, Write::Term(term)),
        }
    }

    fn transmit(&mut self, machine: usize, to: gpuvine::core::id::NodeId, message: Message) {
        let message = self.tamper(message);
        if let Some((_, link)) = self.link_to(machine, to) {
            self.send(link, machine, &Cargo::Message(message));
        }
    }

    fn tamper(&self, mut message: Message) -> Message {
        if self.sabotage == Some(Sabotage::ForgetPlaces) {
            let last = OrderKey { term: Term(0), seq: self.events };
            match &mut message {
                Message::Control(control::Message::Ask(ask)) => ask.key = Some(last),
                Message::Control(control::Message::Present { asks, .. }) => {
                    asks.iter_mut().for_each(|ask| ask.key = Some(last));
                }
                _ => {}
            }
        }
        message
    }

    fn perform_job(&mut self, machine: usize, effect: job::Effect) {
        match effect {
            job::Effect::Acknowledge { task } => self.acknowledge(machine, task),
            job::Effect::Attach { task, node } => {
                self.connect(machine, task, node, First::Attach);
            }
            job::Effect::Changed(job) => self.on_job_changed(machine, job),
            job::Effect::Forget(job) => self.store(machine, Write::Forget(job)),
            job::Effect::Offer { .. } if self.is_idle_on_purpose() => {}
            job::Effect::Offer { task, grant } => {
                let node = grant.value().node;
                let at = self.machine_of(node).unwrap_or(usize::MAX);
                self.say(machine, "offers", format_args!("{task} to n{at}"));
                self.connect(machine, task, node, First::Open(grant));
            }
            job::Effect::Stop { task, now } => self.order_stop(machine, task, now),
            job::Effect::Store(record) => self.store(machine, Write::Job(record)),
            job::Effect::Control(_) | job::Effect::Present(_) => {}
        }
    }

    /// The mesh has come to rest, and now it is sabotaged.
    fn is_idle_on_purpose(&self) -> bool {
        self.sabotage == Some(Sabotage::NoOffers) && !self.probes.is_empty()
    }

    fn on_job_changed(&mut self, machine: usize, job: gpuvine::core::id::JobId) {
        let node = self.machines[machine].node.as_ref();
        let Some(record) = node.and_then(|node| node.jobs().find(job)) else { return };
        let state = match &record.state {
            JobState::Ended { outcome, .. } => format!("ended {outcome:?}"),
            JobState::Rejected { why, .. } => format!("rejected {why:?}"),
            JobState::Running { connected, .. } => format!("running connected={connected}"),
            JobState::Starting { grant } => format!("starting term {}", grant.term),
            JobState::Waiting { reason } => format!("waiting {reason:?}"),
        };
        let (task, never_ran) = (
            record.task,
            matches!(record.state, JobState::Rejected { .. } | JobState::Ended { place: None, .. }),
        );
        self.say(machine, "job", format_args!("{task} {state}"));
        if never_ran {
            self.drop_home(machine, job);
        }
    }

    fn perform_ledger(&mut self, machine: usize, effect: ledger::Effect) {
        match effect {
            ledger::Effect::Accept { offer, lease, .. } => self.on_accept(machine, offer, lease),
            ledger::Effect::Refuse { offer, refusal } => self.on_refuse(machine, offer, refusal),
            ledger::Effect::Resume { offer, task } => self.on_resume(machine, offer, task),
            ledger::Effect::Changed => {}
        }
    }

    /// The addresses of members that were seen are kept.
    fn keep_peers(&mut self, machine: usize) {
        let Some(node) = &self.machines[machine].node else { return };
        let known: Vec<usize> = node
            .directory()
            .iter()
            .filter_map(|(id, _)| self.ids.get(&id).copied())
            .filter(|peer| {
                !self.are_twins(*peer, machine)
                    && !self.machines[machine].disk.image.peers.contains(peer)
            })
            .collect();
        for peer in known {
            self.store(machine, Write::Peer(peer));
        }
    }

    fn store(&mut self, machine: usize, write: Write) {
        if self.sabotage == Some(Sabotage::ForgetTerms) && matches!(write, Write::Term(_)) {
            // As if it were on the disk.
            if let Write::Term(term) = write {
                self.input(machine, Input::TermStored(term));
            }
            return;
        }
        let urgent = matches!(write, Write::Term(_));
        let here = &mut self.machines[machine];
        let idle = here.disk.ask(write);
        let wait = if urgent { Duration::ZERO } else { GROUP_WAIT };
        if idle || urgent {
            let life = here.life;
            self.agenda.at(self.now + wait, Event::Commit { machine, life });
        }
    }

    pub(super) fn on_commit(&mut self, machine: usize) {
        let here = &mut self.machines[machine];
        if !here.disk.begin() {
            return;
        }
        let slow = self.options.faults.has(Fault::SlowDisk) && self.striking;
        let takes = match slow && self.rng.random_bool(0.1) {
            true => Duration::from_millis(self.rng.random_range(100..3_000)),
            false => Duration::from_micros(self.rng.random_range(1_000..8_000)),
        };
        let life = self.machines[machine].life;
        self.agenda.at(self.now + takes, Event::Written { machine, life });
    }

    pub(super) fn on_written(&mut self, machine: usize) {
        let life = self.machines[machine].life;
        let done = self.machines[machine].disk.finish();
        for write in done {
            match write {
                Write::Job(record) => {
                    self.checks.see(&Fact::Synced { machine, record: &record });
                    let stored = job::Input::Stored { job: record.spec.id, ended: is_end(&record) };
                    self.input(machine, Input::Job(stored));
                }
                Write::Forget(job) => self.checks.see(&Fact::Forgotten { machine, job }),
                Write::Term(term) => self.input(machine, Input::TermStored(term)),
                Write::Incarnation(_) | Write::Seniority(_) | Write::Peer(_) => {}
            }
        }
        if self.machines[machine].disk.has_more() {
            self.agenda.at(self.now + GROUP_WAIT, Event::Commit { machine, life });
        }
    }
}

//! Decides what this node says of itself, and when it says it.
//!
//! Every real change makes a new version at once; the controller is told of changed leases one hop
//! later. Gossip of the same changes is coalesced, so that thousands of short tasks do not flood
//! the mesh: the latest report is always gossiped in the end, about once a second at most.
//!
//! In: what changes. Out: new signed reports, and which of them to gossip.
//! Always true: (incarnation, version) only grows, also over what others remember of this node.
//!
//! An incarnation may be taken twice: by a disk that was put back, by a copy of the machine. So the
//! versions of a start begin anywhere: were they counted from one, two different reports could have
//! the same age, and neither would ever take the other's place.

use std::collections::BTreeMap;

use super::id::{Incarnation, NodeId, Version};
use super::outbox::Outbox;
use super::report::{Gpu, LeaseState, LeaseView, NodeState, Report};
use super::signed::{Key, Signed};
use super::time::{Duration, Instant};

/// The least time between two gossiped reports of this node.
const GOSSIP_EVERY: Duration = Duration::from_secs(1);

/// Free memory is told in steps of this many bytes, so that its noise is no news.
const MEMORY_STEP: u64 = 1 << 30;

/// What does not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What people call the machine.
    pub name: String,
    /// Operator's words.
    pub labels: BTreeMap<String, String>,
    /// Operator's wish.
    pub priority: i32,
    /// Logical CPUs.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Version of the program.
    pub software: String,
}

/// What reporting is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Where this node can be dialled.
    Addresses(Vec<String>),
    /// The deadline has come.
    Deadline,
    /// The GPUs with their leases, and the tasks without GPUs.
    Leases(Vec<Gpu>, Vec<LeaseView>),
    /// Bytes of memory that are available.
    MemoryFree(u64),
    /// Why there are no GPUs, if there are none.
    Note(Option<String>),
    /// Somebody has a report of this node that is newer than this node's own: its disk was lost, or
    /// the fence file put back. What it says now must be newer still.
    NewerSeen(Incarnation, Version),
    /// What proves that this node is a member.
    Proof(Vec<u8>),
    /// The place in the order of arrival.
    Seniority(u64),
    /// Whether tasks are taken.
    State(NodeState),
}

/// What reporting wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This node's report is this now.
    Changed(Signed<Report>),
    /// Tell everybody.
    Gossip(Signed<Report>),
}

/// This node's report.
#[derive(Debug)]
pub struct Reporting {
    key: Key,
    /// The version with which an incarnation begins.
    first: Version,
    report: Report,
    signed: Signed<Report>,
    /// What is to be said of leases when there is more to say, or when it is time: how far they
    /// are, which changes nothing for anybody's decisions.
    pending: Option<(Vec<Gpu>, Vec<LeaseView>)>,
    /// When the last was gossiped, and whether there is news since.
    gossiped: Option<Instant>,
    news: bool,
}

impl Reporting {
    /// The first report of this start of the node, of which `first` is drawn by chance.
    pub fn new(
        key: Key,
        incarnation: Incarnation,
        first: Version,
        seniority: u64,
        facts: Facts,
    ) -> Self {
        let report = Report {
            node: key.id(),
            incarnation,
            version: first,
            name: facts.name,
            labels: facts.labels,
            priority: facts.priority,
            seniority,
            state: NodeState::Serving,
            gpus: Vec::new(),
            gpus_note: None,
            cpus: facts.cpus,
            memory_bytes: facts.memory_bytes,
            memory_free_bytes: 0,
            software: facts.software,
            addresses: Vec::new(),
            proof: Vec::new(),
            gpuless_tasks: Vec::new(),
        };
        let signed = key.sign(report.clone());
        Self { key, first, report, signed, pending: None, gossiped: None, news: true }
    }

    /// The same for a node that takes no tasks.
    #[must_use]
    pub fn draining(mut self) -> Self {
        self.report.state = NodeState::Draining;
        self.signed = self.key.sign(self.report.clone());
        self
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.news.then(|| self.gossiped.map_or(Instant::ZERO, |at| at + GOSSIP_EVERY))
    }

    /// This node's latest report.
    pub fn signed(&self) -> &Signed<Report> {
        &self.signed
    }

    /// Which node this is.
    pub fn node(&self) -> NodeId {
        self.report.node
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, now: Instant, out: &mut Outbox<Effect>) {
        let due = self.gossiped.is_none_or(|at| now.since(at) >= GOSSIP_EVERY);
        let input = match input {
            Input::Leases(gpus, gpuless) if !due && self.only_progress(&gpus, &gpuless) => {
                self.pending = Some((gpus, gpuless));
                self.news = true;
                return;
            }
            other => other,
        };
        let mut next = self.report.clone();
        if let Some((gpus, gpuless)) = self.pending.take() {
            next.gpus = gpus;
            next.gpuless_tasks = gpuless;
        }
        match input {
            Input::Addresses(addresses) => next.addresses = addresses,
            Input::Deadline => {}
            Input::Leases(gpus, gpuless) => {
                next.gpus = gpus;
                next.gpuless_tasks = gpuless;
            }
            Input::MemoryFree(bytes) => next.memory_free_bytes = bytes / MEMORY_STEP * MEMORY_STEP,
            Input::Note(note) => next.gpus_note = note,
            Input::NewerSeen(incarnation, version) => {
                // What others remember is of another start, whatever its number: this one needs a
                // number of its own, or grants for that one would be honoured here.
                if (incarnation, version) >= self.report.age() {
                    next.incarnation = incarnation.next();
                    next.version = self.first;
                }
            }
            Input::Proof(proof) => next.proof = proof,
            Input::Seniority(seniority) => next.seniority = seniority,
            Input::State(state) => next.state = state,
        }
        if next != self.report {
            next.version = next.version.next();
            self.report = next;
            self.signed = self.key.sign(self.report.clone());
            self.news = true;
            out.push(Effect::Changed(self.signed.clone()));
        }
        if self.news && due {
            self.news = false;
            self.gossiped = Some(now);
            out.push(Effect::Gossip(self.signed.clone()));
        }
    }

    /// Whether these leases differ from the report's only in how far they are.
    fn only_progress(&self, gpus: &[Gpu], gpuless: &[LeaseView]) -> bool {
        let at = LeaseState::Starting;
        let plain = |gpu: &Gpu| {
            let lease = gpu.lease.clone().map(|lease| LeaseView { state: at, ..lease });
            Gpu { lease, ..gpu.clone() }
        };
        let same_gpus = gpus.len() == self.report.gpus.len()
            && gpus.iter().zip(&self.report.gpus).all(|(new, old)| plain(new) == plain(old));
        let tasks = |list: &[LeaseView]| -> Vec<LeaseView> {
            list.iter().cloned().map(|lease| LeaseView { state: at, ..lease }).collect()
        };
        same_gpus && tasks(gpuless) == tasks(&self.report.gpuless_tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::report::testing::gpu;

    const T0: Instant = Instant::from_nanos(9_000_000_000);

    fn reporting() -> Reporting {
        let facts = Facts {
            name: "n".into(),
            labels: BTreeMap::new(),
            priority: 0,
            cpus: 1,
            memory_bytes: 0,
            software: "s".into(),
        };
        Reporting::new(Key::from_seed(&[1; 32]), Incarnation(3), Version(7), 0, facts)
    }

    fn handle(reporting: &mut Reporting, input: Input, now: Instant) -> Vec<Effect> {
        let mut out = Outbox::new();
        reporting.handle(input, now, &mut out);
        out.drain().collect()
    }

    fn leases(taken: u64) -> Input {
        let mut gpu = gpu("a", "A100", 80);
        gpu.seq = super::super::id::LeaseSeq(taken);
        Input::Leases(vec![gpu], Vec::new())
    }

    #[test]
    fn many_changes_in_a_second_are_gossiped_twice_the_last_included() {
        let mut reporting = reporting();
        let mut gossiped = 0;
        for change in 1..=100 {
            let effects = handle(&mut reporting, leases(change), T0);
            assert!(matches!(effects[0], Effect::Changed(_)));
            gossiped += effects.iter().filter(|e| matches!(e, Effect::Gossip(_))).count();
        }
        assert_eq!(gossiped, 1);
        let at = reporting.deadline().unwrap();
        let effects = handle(&mut reporting, Input::Deadline, at);
        assert_eq!(effects, [Effect::Gossip(reporting.signed().clone())]);
        assert_eq!(reporting.deadline(), None);
    }

    #[test]
    fn how_far_a_lease_is_waits_for_the_next_report() {
        let lease = |state| {
            let mut gpu = gpu("a", "A100", 80);
            gpu.lease = Some(LeaseView {
                job: super::super::id::JobId::from_bits(1),
                attempt: super::super::id::Attempt(1),
                name: "n".into(),
                owner: "o".into(),
                home: NodeId([1; 32]),
                since: super::super::time::WallTime(1),
                state,
            });
            Input::Leases(vec![gpu], Vec::new())
        };
        let mut reporting = reporting();
        handle(&mut reporting, lease(LeaseState::Starting), T0);
        assert!(handle(&mut reporting, lease(LeaseState::Running), T0).is_empty());
        let at = reporting.deadline().unwrap();
        let effects = handle(&mut reporting, Input::Deadline, at);
        assert!(matches!(effects[..], [Effect::Changed(_), Effect::Gossip(_)]));
        let shown = reporting.signed().value().gpus[0].lease.clone().unwrap();
        assert_eq!(shown.state, LeaseState::Running);
    }

    #[test]
    fn what_does_not_change_is_no_news() {
        let mut reporting = reporting();
        handle(&mut reporting, leases(1), T0);
        assert!(handle(&mut reporting, leases(1), T0).is_empty());
        handle(&mut reporting, Input::MemoryFree(5 * MEMORY_STEP), T0);
        assert!(handle(&mut reporting, Input::MemoryFree(5 * MEMORY_STEP + 7), T0).is_empty());
    }

    #[test]
    fn a_node_outbids_what_others_remember_of_it() {
        let mut reporting = reporting();
        let seen = Input::NewerSeen(Incarnation(9), Version(40));
        handle(&mut reporting, seen, T0);
        assert_eq!(reporting.signed().value().age(), (Incarnation(10), Version(8)));
        let old = Input::NewerSeen(Incarnation(2), Version(99));
        assert!(handle(&mut reporting, old, T0).is_empty());
    }
}

//! Decides what to exchange so that two directories become equal (anti-entropy).
//!
//! Gossip is never the only way by which a state arrives. Every few seconds a node compares the
//! digest of its directory with a random linked peer. When they differ, it sends the digests of
//! [`PARTS`] parts of the order of ids, and the peer does the same within each part that differs,
//! until a part is short enough to exchange the ages of what lies there, and then the reports that
//! the other lacks. So one report that is missing costs the logarithm of the mesh, not all of it.
//!
//! A node that joins sends its (nearly empty) summary to the first peers that it links, and so
//! pulls the whole directory once.
//!
//! In: links, messages, the directory. Out: messages, reports learnt, and that the first pull is
//! complete. Always true: one message causes a bounded number of bounded answers, and equal
//! directories cause none.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;
use serde::{Deserialize, Serialize};

use super::directory::{Age, Directory, Entry};
use super::id::NodeId;
use super::outbox::Outbox;
use super::report::Report;
use super::signed::Signed;
use super::time::{Duration, Instant};

/// Reports in one [`Message::Reports`], and entries in one [`Message::Summary`] page.
pub const PAGE: usize = 64;

/// Parts in one [`Message::Parts`].
pub const PARTS: usize = 16;

/// Bytes of reports in one [`Message::Reports`], unless a single one is larger.
const REPORTS_BYTES_MAX: usize = 256 * 1024;

/// Peers from which a node that has just started pulls.
const PULLS_MAX: usize = 3;

/// How often digests are compared, on average.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// A directory, or a part of one, in twelve bytes: equal digests mean equal directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many reports.
    pub count: u32,
    /// Order-independent hash of (node, incarnation, version) of each.
    pub hash: u64,
}

/// What travels between two repairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// This is my directory's digest; if yours differs, say more.
    Digest(Digest),
    /// These are the digests of what I have after one node id, part by part; where yours differs,
    /// say more.
    Parts {
        /// The first part begins after this node; at the first if `None`.
        after: Option<NodeId>,
        /// The node with which each part ends (the last node if `None`), and its digest; by id, at
        /// most [`PARTS`].
        parts: Vec<(Option<NodeId>, Digest)>,
    },
    /// These reports are newer than yours, or you wanted them.
    Reports {
        /// The reports, at most [`PAGE`].
        reports: Vec<Signed<Report>>,
        /// Whether this completes the answer to a summary.
        last: bool,
    },
    /// These are the ages of what I have after one node id, up to another.
    Summary {
        /// The page begins after this node; at the first if `None`.
        after: Option<NodeId>,
        /// The page ends with this node; with the last if `None`, and then the summary is complete.
        upto: Option<NodeId>,
        /// What lies between, by id, at most [`PAGE`].
        ages: Vec<Age>,
    },
    /// Send me the reports of these, at most [`PAGE`].
    Want(Vec<NodeId>),
}

/// What repair is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The deadline has come.
    Deadline,
    /// A link was opened.
    Linked(NodeId),
    /// A message of a linked peer.
    Received(NodeId, Message),
    /// A link is gone.
    Unlinked(NodeId),
}

/// What repair wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Compare what else there is to know with this peer.
    Compare(NodeId),
    /// A report that may be news.
    Learnt(Signed<Report>),
    /// For the first time since its start the node has all that a peer had.
    Pulled,
    /// Send this.
    Send(NodeId, Message),
}

/// The comparison of directories with peers.
#[derive(Debug)]
pub struct Repair {
    rng: ChaCha12Rng,
    links: BTreeSet<NodeId>,
    compare_at: Option<Instant>,
    pulls: usize,
    pulled: bool,
}

impl Repair {
    /// A node that has just started.
    pub fn new(rng: ChaCha12Rng) -> Self {
        Self { rng, links: BTreeSet::new(), compare_at: None, pulls: 0, pulled: false }
    }

    /// The directory is whole already.
    pub fn adopt(&mut self) {
        self.pulled = true;
    }

    /// When it next wants [`Input::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.compare_at
    }

    /// Handles one input.
    pub fn handle(
        &mut self,
        input: Input,
        directory: &Directory,
        now: Instant,
        out: &mut Outbox<Effect>,
    ) {
        match input {
            Input::Deadline => self.on_deadline(directory, now, out),
            Input::Linked(node) => {
                self.links.insert(node);
                if self.compare_at.is_none() {
                    self.compare_at = Some(now + self.next_wait());
                }
                if !self.pulled && self.pulls < PULLS_MAX {
                    self.pulls += 1;
                    summarize(node, directory, out);
                }
            }
            Input::Received(from, message) => self.on_message(from, message, directory, out),
            Input::Unlinked(node) => {
                self.links.remove(&node);
                if self.links.is_empty() {
                    self.compare_at = None;
                    // Whom it asked may be gone without an answer: the next link is asked again.
                    self.pulls = 0;
                }
            }
        }
    }

    fn on_deadline(&mut self, directory: &Directory, now: Instant, out: &mut Outbox<Effect>) {
        if self.compare_at.is_none_or(|at| at > now) || self.links.is_empty() {
            return;
        }
        let chosen = self.rng.random_range(0..self.links.len());
        if let Some(peer) = self.links.iter().nth(chosen) {
            // The answer to the first pull may have been lost.
            if self.pulled {
                out.push(Effect::Send(*peer, Message::Digest(directory.digest())));
            } else {
                summarize(*peer, directory, out);
            }
            out.push(Effect::Compare(*peer));
        }
        self.compare_at = Some(now + self.next_wait());
    }

    /// Between half and one and a half times the average, so that nodes do not fall into step.
    fn next_wait(&mut self) -> Duration {
        COMPARE_EVERY.mul_f64(self.rng.random_range(0.5..1.5))
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        directory: &Directory,
        out: &mut Outbox<Effect>,
    ) {
        match message {
            Message::Digest(digest) if digest == directory.digest() => {}
            Message::Digest(_) if self.pulled => describe(from, None, None, directory, out),
            Message::Digest(_) => summarize(from, directory, out),
            Message::Parts { after, parts } if parts.len() <= PARTS => {
                let mut after = after;
                for (upto, digest) in parts {
                    if digest != directory.digest_between(after, upto) {
                        describe(from, after, upto, directory, out);
                    }
                    after = upto;
                }
            }
            Message::Parts { .. } => {}
            Message::Reports { reports, last } => {
                for report in reports.into_iter().take(PAGE) {
                    out.push(Effect::Learnt(report));
                }
                if last && !self.pulled {
                    self.pulled = true;
                    out.push(Effect::Pulled);
                }
            }
            Message::Summary { after, upto, ages } if ages.len() <= PAGE => {
                compare(from, after, upto, &ages, directory, out);
            }
            Message::Summary { .. } => {}
            Message::Want(nodes) => {
                let reports = nodes
                    .iter()
                    .take(PAGE)
                    .filter_map(|node| Some(directory.get(*node)?.signed().clone()))
                    .collect();
                send_reports(from, reports, false, out);
            }
        }
    }
}

/// Sends the ages of the whole directory, page by page.
fn summarize(to: NodeId, directory: &Directory, out: &mut Outbox<Effect>) {
    let mut after = None;
    loop {
        let ages = directory.ages(after, PAGE);
        let last = ages.last().map(|(node, ..)| *node);
        let upto = if ages.len() < PAGE { None } else { last };
        out.push(Effect::Send(to, Message::Summary { after, upto, ages }));
        if upto.is_none() {
            return;
        }
        after = upto;
    }
}

/// Says more of a part of the directory: its ages if they are few, else digests of smaller parts.
fn describe(
    to: NodeId,
    after: Option<NodeId>,
    upto: Option<NodeId>,
    directory: &Directory,
    out: &mut Outbox<Effect>,
) {
    let here: Vec<&Entry> = directory.between(after, upto).collect();
    if here.len() <= PAGE {
        let ages = here.into_iter().map(Entry::age).collect();
        out.push(Effect::Send(to, Message::Summary { after, upto, ages }));
        return;
    }
    let chunks = here.chunks(here.len().div_ceil(PARTS));
    let mut parts: Vec<(Option<NodeId>, Digest)> = chunks
        .map(|chunk| {
            let mut digest = Digest::default();
            chunk.iter().for_each(|entry| digest.add(entry));
            (chunk.last().map(|entry| entry.report().node), digest)
        })
        .collect();
    // What the peer has behind this node's last belongs to the last part.
    if let Some((end, _)) = parts.last_mut() {
        *end = upto;
    }
    out.push(Effect::Send(to, Message::Parts { after, parts }));
}

/// Answers one page of a summary: what is newer here is sent, what is newer there is wanted.
fn compare(
    from: NodeId,
    after: Option<NodeId>,
    upto: Option<NodeId>,
    theirs: &[Age],
    directory: &Directory,
    out: &mut Outbox<Effect>,
) {
    let ages: BTreeMap<NodeId, _> = theirs.iter().map(|(node, i, v)| (*node, (*i, *v))).collect();
    let newer = directory
        .between(after, upto)
        .filter(|entry| {
            let age = ages.get(&entry.report().node);
            age.is_none_or(|age| *age < entry.report().age())
        })
        .map(|entry| entry.signed().clone())
        .collect();
    send_reports(from, newer, upto.is_none(), out);
    let is_news = |(node, age): &(&NodeId, &_)| {
        directory.get(**node).is_none_or(|entry| entry.report().age() < **age)
    };
    let wanted: Vec<NodeId> = ages.iter().filter(is_news).map(|(node, _)| *node).collect();
    if !wanted.is_empty() {
        out.push(Effect::Send(from, Message::Want(wanted)));
    }
}

/// Sends reports in messages of bounded size; with `last` at least one message.
fn send_reports(to: NodeId, reports: Vec<Signed<Report>>, last: bool, out: &mut Outbox<Effect>) {
    let mut page = Vec::new();
    let mut bytes = 0;
    for report in reports {
        let len = report.bytes().len();
        if page.len() == PAGE || (bytes + len > REPORTS_BYTES_MAX && !page.is_empty()) {
            let reports = std::mem::take(&mut page);
            out.push(Effect::Send(to, Message::Reports { reports, last: false }));
            bytes = 0;
        }
        bytes += len;
        page.push(report);
    }
    if last || !page.is_empty() {
        out.push(Effect::Send(to, Message::Reports { reports: page, last }));
    }
}

//! Decides what to exchange so that two directories become equal (anti-entropy).
//!
//! Gossip is never the only way by which a state arrives. Every few seconds a node compares the
//! digest of its directory with a random linked peer; only when they differ the peers exchange the
//! ages of what they hold, and then the reports that the other lacks. A node that joins sends its
//! (nearly empty) summary to the first peers that it links, and so pulls the whole directory once.
//!
//! In: links, messages, the directory. Out: messages, reports learnt, and that the first pull is
//! complete. Always true: one message causes a bounded number of bounded answers, and equal
//! directories cause none.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::id::{Incarnation, NodeId, Version};
use super::outbox::Outbox;
use super::report::Report;
use super::signed::Signed;
use super::time::{Duration, Instant};

/// Reports in one [`Message::Reports`], and entries in one [`Message::Summary`] page.
pub const PAGE: usize = 64;

/// Bytes of reports in one [`Message::Reports`], unless a single one is larger.
const REPORTS_BYTES_MAX: usize = 256 * 1024;

/// Peers from which a node that has just started pulls.
const PULLS_MAX: usize = 3;

/// How often digests are compared, on average.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// A directory in sixteen bytes: equal digests mean equal directories.
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
    /// This is my directory's digest; if yours differs, send a summary.
    Digest(Digest),
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
        ages: Vec<(NodeId, Incarnation, Version)>,
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
            Message::Digest(digest) if digest != directory.digest() => {
                summarize(from, directory, out);
            }
            Message::Digest(_) => {}
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

/// Answers one page of a summary: what is newer here is sent, what is newer there is wanted.
fn compare(
    from: NodeId,
    after: Option<NodeId>,
    upto: Option<NodeId>,
    theirs: &[(NodeId, Incarnation, Version)],
    directory: &Directory,
    out: &mut Outbox<Effect>,
) {
    let age_of = |node: NodeId| {
        let at = theirs.iter().find(|(id, ..)| *id == node);
        at.map(|(_, incarnation, version)| (*incarnation, *version))
    };
    let here: Vec<NodeId> = directory
        .ages(after, usize::MAX)
        .into_iter()
        .map(|(node, ..)| node)
        .take_while(|node| upto.is_none_or(|upto| *node <= upto))
        .collect();
    let newer = here
        .iter()
        .filter_map(|node| directory.get(*node))
        .filter(|entry| age_of(entry.report().node).is_none_or(|age| age < entry.report().age()))
        .map(|entry| entry.signed().clone())
        .collect();
    send_reports(from, newer, upto.is_none(), out);
    let wanted: Vec<NodeId> = theirs
        .iter()
        .filter(|(node, incarnation, version)| {
            let known = directory.get(*node).map(|entry| entry.report().age());
            known.is_none_or(|age| age < (*incarnation, *version))
        })
        .map(|(node, ..)| *node)
        .collect();
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

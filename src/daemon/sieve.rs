//! Lets through to the core what members say, and nothing else.
//!
//! A link is with a member; what comes over it may be of others, whom this node has never met:
//! reports, claims, relayed requests. Each is signed, but anybody can make a key. So every report
//! carries the proof that its node is a member, and what it may do; without a good one it is
//! dropped. Whose report is known is known; a claim or a request of anybody else is dropped too,
//! but that a claim may be ahead of its claimant's report: it is held back until that comes.
//!
//! By the way every member sees who has used which ticket, whether they ever meet or not.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::admission::Judge;
use crate::core::control;
use crate::core::directory::NODES_MAX;
use crate::core::election::{self, Claim};
use crate::core::id::NodeId;
use crate::core::message::{Gossip, Message};
use crate::core::node::{Input, Node};
use crate::core::repair;
use crate::core::report::Report;
use crate::core::rights::Rights;
use crate::core::signed::Signed;

/// Claims that are held back; of more, the latest to come are dropped, and learnt of again.
const CLAIMS_MAX: usize = 16;

/// Knows who has proven to be a member.
#[derive(Debug)]
pub(super) struct Sieve {
    judge: Arc<Judge>,
    /// The hash of each member's proof, so that it is judged once; at most [`NODES_MAX`].
    proven: BTreeMap<NodeId, [u8; 32]>,
    /// What [`Judge::evicted`] said when they were judged.
    evicted: u64,
    /// The highest claim of each claimant whose report has not come yet.
    claims: BTreeMap<NodeId, Signed<Claim>>,
    /// Members that have been found to be none, since this was asked last.
    expelled: Vec<NodeId>,
}

impl Sieve {
    pub(super) fn new(judge: Arc<Judge>) -> Self {
        Self {
            judge,
            proven: BTreeMap::new(),
            evicted: 0,
            claims: BTreeMap::new(),
            expelled: Vec::new(),
        }
    }

    /// What this node shows of itself.
    pub(super) fn proof(&self) -> Vec<u8> {
        self.judge.proof()
    }

    /// Who has been found to be no member since this was asked last: their links are to be closed,
    /// and the gate tells them why when they come back.
    pub(super) fn take_expelled(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.expelled)
    }

    /// What of something that was said the core is to hear, in order.
    pub(super) fn sift(&mut self, node: &Node, mut said: Input) -> Vec<Input> {
        let mut heard = Heard::default();
        let passes = match &mut said {
            Input::Gossiped(Gossip::Report(report)) => self.report(node, report, &mut heard),
            Input::Gossiped(Gossip::Claim(claim))
            | Input::Received(_, Message::Election(election::Message::Claim(claim))) => {
                self.claim(node, claim)
            }
            Input::Received(_, Message::Control(message)) => {
                self.control(node, message, &mut heard)
            }
            Input::Received(_, Message::Relay(relayed)) if relayed.value().to == node.id() => {
                is_known(node, relayed.signer())
                    && self.control(node, &relayed.value().message, &mut heard)
            }
            Input::Received(_, Message::Repair(repair::Message::Reports { reports, .. })) => {
                reports.retain(|report| self.report(node, report, &mut heard));
                true
            }
            _ => true,
        };
        let Heard { mut before, after } = heard;
        before.extend(passes.then_some(said));
        before.extend(after);
        before
    }

    fn control(&mut self, node: &Node, message: &control::Message, heard: &mut Heard) -> bool {
        match message {
            control::Message::Changed(report) | control::Message::Present { report, .. } => {
                self.report(node, report, heard)
            }
            _ => true,
        }
    }

    /// Whether a report is a member's. One that is not newer than what is known costs nothing: the
    /// core drops it.
    fn report(&mut self, node: &Node, report: &Signed<Report>, heard: &mut Heard) -> bool {
        let (about, value) = (report.signer(), report.value());
        let known = node.directory().get(about);
        if about == node.id() || known.is_some_and(|known| known.report().age() >= value.age()) {
            return true;
        }
        let evicted = self.judge.evicted();
        if evicted != std::mem::replace(&mut self.evicted, evicted) {
            self.proven.clear();
        }
        let hash: [u8; 32] = Sha256::digest(&value.proof).into();
        // What the core has forgotten is told again.
        if known.is_some() && self.proven.get(&about) == Some(&hash) {
            return true;
        }
        match self.judge.recognize(about, &value.proof) {
            Ok(rights) => {
                self.keep(node, about, hash);
                heard.before.push(Input::Recognized(about, rights));
                let claim = self.claims.remove(&about);
                heard.after.extend(claim.map(|claim| Input::Gossiped(Gossip::Claim(claim))));
                true
            }
            Err(why) => {
                tracing::debug!(node = %about.short(), why, "a report is dropped");
                self.proven.remove(&about);
                if is_known(node, about) {
                    // It was a member, and is none: nothing more is done for it, or by it.
                    let none = Rights { node: false, submit: false };
                    heard.before.push(Input::Recognized(about, none));
                    self.expelled.push(about);
                }
                false
            }
        }
    }

    fn keep(&mut self, node: &Node, about: NodeId, hash: [u8; 32]) {
        if self.proven.len() >= NODES_MAX {
            self.proven.retain(|known, _| node.directory().get(*known).is_some());
        }
        if self.proven.len() < NODES_MAX {
            self.proven.insert(about, hash);
        }
    }

    fn claim(&mut self, node: &Node, claim: &Signed<Claim>) -> bool {
        let by = claim.signer();
        if is_known(node, by) {
            return true;
        }
        let held = self.claims.get(&by).is_none_or(|held| held.value().term < claim.value().term);
        if held && (self.claims.len() < CLAIMS_MAX || self.claims.contains_key(&by)) {
            self.claims.insert(by, claim.clone());
        }
        false
    }
}

/// What the core is to hear around something that was said.
#[derive(Default)]
struct Heard {
    before: Vec<Input>,
    after: Vec<Input>,
}

/// Whether somebody has proven to be a member: the directory holds nobody else's report, and a link
/// is with nobody else.
fn is_known(node: &Node, who: NodeId) -> bool {
    node.directory().get(who).is_some() || node.neighbours().links().contains(&who)
}

//! A node of the model of elections: its election, its disk and its clock.

use std::collections::BTreeSet;

use gpuvine::core::election::{Claim, Config, Effect, Election, Input, Message, Why};
use gpuvine::core::id::{NodeId, Reign, Term};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::signed::{Key, Signed};
use gpuvine::core::time::Instant;

use super::{Event, NODES, Sabotage};
use crate::exhaustive::checker::Sights;
use crate::sim::invariants::Violation;

/// What is under way. It may arrive at any time, as often as it likes, or never.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Note {
    /// For everybody, its author too: its own claim comes back to a node that was restarted.
    Gossip(Signed<Claim>),
    /// For one.
    Send { from: usize, to: usize, message: Message },
}

impl Note {
    pub(super) fn is_for(&self, node: usize) -> bool {
        match self {
            Self::Gossip(_) => true,
            Self::Send { to, .. } => *to == node,
        }
    }

    /// The reign that it tells of.
    fn claim(&self) -> Option<Reign> {
        match self {
            Self::Gossip(claim) | Self::Send { message: Message::Claim(claim), .. } => {
                Some(Reign { term: claim.value().term, controller: claim.signer() })
            }
            Self::Send { .. } => None,
        }
    }
}

/// What the model's actions do to a node, and what it says.
pub(super) struct Turn<'a> {
    keys: &'a [Key; NODES],
    terms: u64,
    sabotage: Option<Sabotage>,
    pub(super) notes: Vec<Note>,
    pub(super) sights: Sights,
}

impl<'a> Turn<'a> {
    pub(super) fn new(keys: &'a [Key; NODES], terms: u64, sabotage: Option<Sabotage>) -> Self {
        Self { keys, terms, sabotage, notes: Vec::new(), sights: Sights::default() }
    }

    fn candidates(&self) -> Vec<NodeId> {
        self.keys.iter().map(Key::id).collect()
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Voter {
    number: usize,
    election: Election,
    clock: Instant,
    disk: Term,
    /// The term that is being stored.
    storing: Option<Term>,
    /// For the rules: the terms that it ever claimed.
    claimed: BTreeSet<Term>,
    /// For the rules: the reign that it followed last in this life.
    followed: Option<Reign>,
}

fn broken(rule: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { rule, what })
}

impl Voter {
    /// A node that has heard all there is to hear: nothing.
    pub(super) fn new(number: usize, turn: &mut Turn<'_>) -> Self {
        let mut voter = Self {
            number,
            election: fresh(number, Term(0), turn),
            clock: Instant::ZERO,
            disk: Term(0),
            storing: None,
            claimed: BTreeSet::new(),
            followed: None,
        };
        let mut out = Outbox::new();
        voter.election.handle(Input::Pulled, Instant::ZERO, &mut out);
        // The best placed begins to claim; nobody has anything to say yet.
        while let Some(effect) = out.pop() {
            if let Effect::StoreTerm(term) = effect {
                voter.storing = Some(term);
            }
        }
        voter
    }

    /// Whether its disk is busy.
    pub(super) fn stores(&self) -> bool {
        self.storing.is_some()
    }

    /// When its timer goes off.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.election.deadline()
    }

    /// The reign of which it is the controller, if it is.
    pub(super) fn reigns(&self) -> Option<Reign> {
        self.election.reign().filter(|_| self.election.is_controller())
    }

    /// Something happens.
    pub(super) fn happen(&mut self, event: Event, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let id = |node: usize| turn.keys[node].id();
        match event {
            Event::Compare(node) => self.tell(Input::Compare(id(node)), turn),
            Event::Crash => {
                self.restart(turn);
                Ok(())
            }
            Event::Down(node) => self.tell(Input::Down(id(node)), turn),
            Event::Hear(_) => Ok(()),
            Event::Sync => self.sync(turn),
            Event::Timer => {
                self.clock = self.deadline().map_or(self.clock, |at| at.max(self.clock));
                self.tell(Input::Deadline, turn)
            }
        }
    }

    /// It hears a note.
    pub(super) fn hear(&mut self, note: &Note, turn: &mut Turn<'_>) -> Result<(), Violation> {
        if turn.sabotage == Some(Sabotage::Amnesia) {
            self.election = fresh(self.number, self.disk, turn);
        }
        let reigned = self.reigns();
        let deaf = turn.sabotage == Some(Sabotage::Deaf);
        match note {
            _ if deaf => {}
            Note::Gossip(claim) => self.tell(Input::Heard(claim.clone()), turn)?,
            Note::Send { from, message, .. } => {
                let from = turn.keys[*from].id();
                self.tell(Input::Received(from, message.clone()), turn)?;
            }
        }
        if reigned.is_some() && self.reigns().is_none() {
            turn.sights.see(5);
        }
        match note.claim() {
            // Nobody follows the ghost of itself from before a restart.
            Some(claim) if claim.controller == self.election.me() => Ok(()),
            Some(claim) if self.election.reign().is_none_or(|reign| reign < claim) => {
                let what = format!("node {} has heard of {claim:?}", self.number);
                broken("the_highest_is_followed", what)
            }
            _ => Ok(()),
        }
    }

    fn tell(&mut self, input: Input, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let mut out = Outbox::new();
        self.election.handle(input, self.clock, &mut out);
        while let Some(effect) = out.pop() {
            match effect {
                Effect::Broadcast(claim) => self.claims(claim, turn)?,
                Effect::Send(to, message) => {
                    let to = turn.keys.iter().position(|key| key.id() == to);
                    if matches!(message, Message::Claim(_)) {
                        turn.sights.see(6);
                    }
                    let from = self.number;
                    turn.notes.extend(to.map(|to| Note::Send { from, to, message }));
                }
                Effect::StoreTerm(term) => {
                    if term.0 <= turn.terms {
                        self.storing = self.storing.max(Some(term));
                    }
                    if turn.sabotage == Some(Sabotage::SpeakFirst) {
                        self.tell(Input::TermStored(term), turn)?;
                    }
                }
                Effect::CountAhead => {
                    let what = "candidates are counted that are all known".to_owned();
                    return broken("only_many_are_counted", what);
                }
                // Links are never opened; whom it follows is looked at below.
                Effect::Connect(_) | Effect::Followed(_) => {}
            }
        }
        self.check()
    }

    /// A claim goes out.
    fn claims(&mut self, claim: Signed<Claim>, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let Claim { term, why } = claim.value();
        if *term > self.disk {
            let what = format!("node {} claims {term}, its disk has {}", self.number, self.disk);
            return broken("stored_before_claimed", what);
        }
        if self.claimed.last().is_some_and(|last| last >= term) {
            let what = format!("node {} claims {term} after {:?}", self.number, self.claimed);
            return broken("claims_only_grow", what);
        }
        if term.0 > 1 {
            turn.sights.see(2);
        }
        match why {
            Why::Restarted => turn.sights.see(3),
            Why::Unreachable { .. } => turn.sights.see(4),
            Why::Alone | Why::Dead { .. } | Why::Left { .. } | Why::NoController => {}
        }
        self.claimed.insert(*term);
        turn.notes.push(Note::Gossip(claim));
        Ok(())
    }

    fn sync(&mut self, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let Some(term) = self.storing.take() else { return Ok(()) };
        self.disk = self.disk.max(term);
        self.tell(Input::TermStored(term), turn)
    }

    fn restart(&mut self, turn: &Turn<'_>) {
        if turn.sabotage == Some(Sabotage::ForgetTerms) {
            self.disk = Term(0);
        }
        self.storing = None;
        self.clock = Instant::ZERO;
        self.followed = None;
        self.election = fresh(self.number, self.disk, turn);
    }

    /// What must hold on one node after everything that happens there.
    fn check(&mut self) -> Result<(), Violation> {
        let reign = self.election.reign();
        if reign < self.followed {
            let (number, before) = (self.number, self.followed);
            let what = format!("node {number} follows {reign:?} after {before:?}");
            return broken("reigns_only_grow", what);
        }
        if reign.is_some_and(|reign| reign.term > self.election.term()) {
            let what = format!("node {} does not know the term that it follows", self.number);
            return broken("reigns_only_grow", what);
        }
        self.followed = reign;
        Ok(())
    }
}

/// The election of a daemon that has just started.
fn fresh(number: usize, disk: Term, turn: &Turn<'_>) -> Election {
    let key = turn.keys[number].clone();
    let mut election = Election::new(key, disk, Config::default(), Instant::ZERO);
    let candidates = Input::Candidates { first: turn.candidates(), complete: true };
    // It listens first: nothing comes of it.
    election.handle(candidates, Instant::ZERO, &mut Outbox::new());
    election
}

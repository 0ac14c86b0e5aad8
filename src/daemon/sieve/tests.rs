//! Whose words come through, and whose do not.

use super::*;
use crate::auth::{Credential, Grantee, MeshKey, Passport, Roles, Tickets, Token};
use crate::clock;
use crate::core::control::Relayed;
use crate::core::election::Why;
use crate::core::id::{Attempt, Incarnation, JobId, Term, Version};
use crate::core::node::Config;
use crate::core::outbox::Outbox;
use crate::core::report::testing::report;
use crate::core::reporting::Facts;
use crate::core::signed::Key;
use crate::core::task::TaskId;
use crate::core::time::WallTime;
use crate::core::{controller, ledger};
use crate::net::Admission as _;
use crate::store::Store;

fn mesh() -> MeshKey {
    MeshKey::from_seed([1; 32])
}

fn key(number: u8) -> Key {
    Key::from_seed(&[number; 32])
}

fn ticket(roles: Roles) -> Token {
    let expires = Some(WallTime(clock::wall().0 + 600_000));
    mesh().mint(&Grantee { roles, user: None, expires, uses: 1 }).unwrap()
}

fn passport(number: u8, ticket: &Token) -> Passport {
    let token = ticket.bind(mesh().mesh(), key(number).id()).unwrap();
    let credential = Credential { token, endorsed: None };
    Passport::new(mesh().mesh(), key(number), credential, Tickets::default())
}

/// A node that knows only itself, and what is let through to it.
struct Here {
    node: Node,
    sieve: Sieve,
    _folder: tempfile::TempDir,
}

impl Here {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path()).unwrap().0);
        let judge = Arc::new(Judge::new(passport(1, &ticket(Roles::ALL)), store));
        let facts = Facts {
            name: "here".into(),
            labels: BTreeMap::new(),
            priority: 0,
            cpus: 1,
            memory_bytes: 0,
            software: "test".into(),
        };
        let config = Config {
            key: key(1),
            incarnation: Incarnation(1),
            term: Term(0),
            seniority: Some(0),
            rights: Rights::ALL,
            facts,
            bootstrap: Vec::new(),
            remembered: Vec::new(),
            seed: [1; 32],
            election: election::Config::default(),
            controller: controller::Config::default(),
            ledger: ledger::Config::default(),
        };
        let node = Node::new(config, clock::now());
        Self { node, sieve: Sieve::new(judge), _folder: folder }
    }

    /// What comes through of it; the core hears that.
    fn hear(&mut self, said: Input) -> Vec<Input> {
        let heard = self.sieve.sift(&self.node, said);
        for input in &heard {
            let mut out = Outbox::new();
            self.node.handle(input.clone(), clock::now(), clock::wall(), &mut out);
        }
        heard
    }
}

/// What a node says of itself, with this proof.
fn says(number: u8, version: u64, proof: &[u8]) -> Input {
    Input::Gossiped(Gossip::Report(signed(number, version, proof)))
}

fn signed(number: u8, version: u64, proof: &[u8]) -> Signed<Report> {
    let version = Version(version);
    key(number).sign(Report { version, proof: proof.to_vec(), ..report(number, Vec::new()) })
}

fn claims(number: u8) -> Signed<Claim> {
    let before = key(9).id();
    key(number).sign(Claim { term: Term(7), why: Why::Dead { before } })
}

#[test]
fn a_report_comes_through_with_what_its_node_may_do_and_is_judged_once() {
    let mut here = Here::new();
    let proof = passport(2, &ticket(Roles { node: false, ..Roles::ALL })).hello();
    let rights = Rights { node: false, submit: true };
    let first = says(2, 1, &proof);
    assert_eq!(here.hear(first.clone()), [Input::Recognized(key(2).id(), rights), first]);
    assert!(!here.node.may_serve(key(2).id()));
    let second = says(2, 2, &proof);
    assert_eq!(here.hear(second.clone()), [second]);
    // A new membership is looked at.
    let proof = passport(2, &ticket(Roles::ALL)).hello();
    assert_eq!(here.hear(says(2, 3, &proof))[0], Input::Recognized(key(2).id(), Rights::ALL));
    assert!(here.node.may_serve(key(2).id()));
}

/// One member could fill every directory with nodes that it made up.
#[test]
fn a_made_up_node_is_in_no_directory_whatever_the_way_it_comes() {
    let mut here = Here::new();
    let proof = passport(2, &ticket(Roles::ALL)).hello();
    let member = key(2).id();
    for stolen in [&[][..], &proof] {
        let report = signed(3, 1, stolen);
        let present =
            control::Message::Present { term: Term(1), report: report.clone(), asks: Vec::new() };
        assert_eq!(here.hear(Input::Gossiped(Gossip::Report(report.clone()))), []);
        assert_eq!(here.hear(Input::Received(member, Message::Control(present))), []);
        let changed = Message::Control(control::Message::Changed(report.clone()));
        assert_eq!(here.hear(Input::Received(member, changed)), []);
        // Of a page the others come through.
        let reports = vec![report, signed(2, 1, &proof)];
        let page = Message::Repair(repair::Message::Reports { reports, last: true });
        here.hear(Input::Received(member, page));
    }
    let known: Vec<NodeId> = here.node.directory().iter().map(|(id, _)| id).collect();
    assert_eq!(known.len(), 2);
    assert!(known.contains(&member));
}

#[test]
fn a_claim_waits_for_the_report_of_its_claimant_and_a_made_up_ones_for_ever() {
    let mut here = Here::new();
    let direct = Message::Election(election::Message::Claim(claims(2)));
    assert_eq!(here.hear(Input::Received(key(4).id(), direct)), []);
    for number in 10..100 {
        assert_eq!(here.hear(Input::Gossiped(Gossip::Claim(claims(number)))), []);
    }
    assert_eq!(here.sieve.claims.len(), CLAIMS_MAX);
    let report = says(2, 1, &passport(2, &ticket(Roles::ALL)).hello());
    let claim = Input::Gossiped(Gossip::Claim(claims(2)));
    assert_eq!(here.hear(report)[2], claim);
    assert_eq!(here.hear(claim.clone()), [claim]);
}

/// A member that may not submit could ask in the name of keys that it has made up.
#[test]
fn only_those_who_have_proven_to_be_members_speak_over_others() {
    let mut here = Here::new();
    let relayed = |number| {
        let task = TaskId { job: JobId::from_bits(1), attempt: Attempt(1) };
        let message = control::Message::Withdraw { task };
        let relayed = key(number).sign(Relayed { to: key(1).id(), message });
        Input::Received(key(4).id(), Message::Relay(relayed))
    };
    here.hear(says(2, 1, &passport(2, &ticket(Roles::ALL)).hello()));
    assert_eq!(here.hear(relayed(2)), [relayed(2)]);
    assert_eq!(here.hear(relayed(3)), []);
}

/// A member that has never met the first machine has seen its report.
#[test]
fn who_used_a_ticket_is_known_from_the_reports_of_others() {
    let mut here = Here::new();
    let ticket = ticket(Roles::ALL);
    here.hear(says(2, 1, &passport(2, &ticket).hello()));
    let refused = here.sieve.judge.welcome(key(3).id(), &passport(3, &ticket).hello());
    assert!(refused.unwrap_err().contains("was used by node"));
}

/// Two that were let in with one ticket while their members were apart: the later one is none.
#[test]
fn one_that_is_found_not_to_be_the_first_may_do_nothing_any_more() {
    let mut here = Here::new();
    let ticket = ticket(Roles::ALL);
    let (mut first, mut second) = (passport(2, &ticket), passport(3, &ticket));
    for (number, joiner, earlier) in [(2, &mut first, 2_000), (3, &mut second, 1_000)] {
        let mut founder = {
            let grantee = Grantee { roles: Roles::ALL, user: None, expires: None, uses: 1 };
            let token = mesh().mint(&grantee).unwrap().bind(mesh().mesh(), key(5).id()).unwrap();
            let credential = Credential { token, endorsed: None };
            Passport::new(mesh().mesh(), key(5), credential, Tickets::default())
        };
        let at = WallTime(clock::wall().0 - earlier);
        let (_, word) = founder.welcome(key(number).id(), &joiner.hello(), at).unwrap();
        joiner.accept(key(5).id(), &word, at).unwrap();
    }
    here.hear(says(3, 1, &second.hello()));
    assert!(here.node.may_serve(key(3).id()));
    here.hear(says(2, 1, &first.hello()));
    let none = Rights { node: false, submit: false };
    assert_eq!(here.hear(says(3, 2, &second.hello())), [Input::Recognized(key(3).id(), none)]);
    assert!(!here.node.may_serve(key(3).id()));
    assert!(here.node.may_serve(key(2).id()));
    assert_eq!(here.sieve.take_expelled(), [key(3).id()]);
}

//! From each machine's effects to the other machines, or out.

use serde_bytes::ByteBuf;

use super::{Effect, Node, SignedReport, Turn};
use crate::core::control::{self, Relayed};
use crate::core::controller::Fleet;
use crate::core::directory::{Inserted, RANKED_MAX};
use crate::core::election;
use crate::core::id::{NodeId, Reign};
use crate::core::message::{Gossip, Message};
use crate::core::outbox::Outbox;
use crate::core::report::{NO_PLACE, NodeState};
use crate::core::signed::Signed;
use crate::core::time::{Instant, WallTime};
use crate::core::{controller, job, ledger, membership, neighbours, repair, reporting};

impl Node {
    pub(super) fn tell_membership(&mut self, input: membership::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.membership.handle(input, turn.now, &mut effects);
        for effect in effects.drain() {
            match effect {
                membership::Effect::Doubt(node) => {
                    self.tell_neighbours(neighbours::Input::Wish(node), turn);
                }
                membership::Effect::Down(node) => self.on_down(node, turn),
                membership::Effect::Send(to, bytes) => {
                    self.send(to, Message::Swim(ByteBuf::from(bytes)), turn);
                }
                membership::Effect::Up(node) => self.on_up(node, turn),
            }
        }
    }

    fn on_up(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        self.directory.mark(node, true, turn.now);
        self.on_node_changed(node, turn);
    }

    fn on_down(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        self.directory.mark(node, false, turn.now);
        self.tell_neighbours(neighbours::Input::Gone(node), turn);
        // A connection that is left over from before leads nowhere.
        turn.out.push(Effect::Hangup(node));
        self.tell_controller(controller::Input::MemberDown(node), turn);
        self.rank(turn.now, turn.at, turn.out);
        self.tell_election(election::Input::Down(node), turn);
        turn.out.push(Effect::MeshChanged);
    }

    /// A node has another report, or is alive again.
    fn on_node_changed(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        turn.out.push(Effect::MeshChanged);
        let Some(entry) = self.directory.get(node).filter(|entry| entry.is_alive()) else { return };
        let leaving = entry.report().state == NodeState::Leaving;
        if node != self.me {
            self.tell_neighbours(neighbours::Input::Alive(node), turn);
        }
        self.rank(turn.now, turn.at, turn.out);
        if leaving {
            self.tell_election(election::Input::Left(node), turn);
        }
        if self.election.is_controller() && !turn.presenting {
            self.tell_controller(controller::Input::FleetChanged(node), turn);
        }
    }

    pub(super) fn tell_repair(&mut self, input: repair::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.repair.handle(input, &self.directory, turn.now, &mut effects);
        for effect in effects.drain() {
            match effect {
                repair::Effect::Compare(peer) => {
                    self.tell_membership(membership::Input::Compare(peer), turn);
                    self.tell_election(election::Input::Compare(peer), turn);
                    // Two that have declared each other dead may miss each other's return.
                    if !self.membership.is_alive(peer) {
                        self.tell_membership(membership::Input::Met(peer), turn);
                    }
                }
                repair::Effect::Learnt(report) => self.learn(report, turn),
                repair::Effect::Pulled => self.on_pulled(turn),
                repair::Effect::Send(to, message) => self.send(to, Message::Repair(message), turn),
            }
        }
    }

    /// The directory of another member is here: this node comes after all that it shows.
    fn on_pulled(&mut self, turn: &mut Turn<'_>) {
        if self.seniority.is_none() {
            let others = self.directory.iter().filter(|(node, _)| *node != self.me);
            let placed = others.map(|(_, entry)| entry.report().seniority);
            let last = placed.filter(|seniority| *seniority != NO_PLACE).max();
            let place = last.map_or(1, |last| last.saturating_add(1));
            self.seniority = Some(place);
            turn.out.push(Effect::StoreSeniority(place));
            self.tell_reporting(reporting::Input::Seniority(place), turn);
        }
        self.tell_election(election::Input::Pulled, turn);
    }

    /// A report has come, whatever its way.
    pub(super) fn learn(&mut self, report: SignedReport, turn: &mut Turn<'_>) {
        let (node, age) = (report.value().node, report.value().age());
        if node == self.me {
            if age > self.report().age() && report.signer() == node {
                self.tell_reporting(reporting::Input::NewerSeen(age.0, age.1), turn);
                self.raise_incarnation(turn);
            }
            return;
        }
        if self.directory.insert(report, turn.now) == Inserted::Newer {
            self.tell_membership(membership::Input::Repaired(node, age.0), turn);
            let alive = self.membership.is_alive(node);
            self.directory.mark(node, alive, turn.now);
            self.on_node_changed(node, turn);
        }
    }

    /// Others remember a later start of this node than its own disk did.
    fn raise_incarnation(&mut self, turn: &mut Turn<'_>) {
        let incarnation = self.report().incarnation;
        if incarnation > self.incarnation {
            self.incarnation = incarnation;
            turn.out.push(Effect::StoreIncarnation(incarnation));
            self.tell_ledger(ledger::Input::Incarnation(incarnation), turn);
            self.tell_membership(membership::Input::Incarnation(incarnation), turn);
        }
    }

    pub(super) fn tell_election(&mut self, input: election::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.election.handle(input, turn.now, &mut effects);
        for effect in effects.drain() {
            match effect {
                election::Effect::Broadcast(claim) => {
                    let links: Vec<NodeId> = self.neighbours.links().iter().copied().collect();
                    for peer in links {
                        let message = election::Message::Claim(claim.clone());
                        self.send(peer, Message::Election(message), turn);
                    }
                    turn.out.push(Effect::Gossip(Gossip::Claim(claim)));
                }
                election::Effect::Connect(node) => {
                    self.tell_neighbours(neighbours::Input::Wish(node), turn);
                }
                election::Effect::CountAhead => self.count_ahead(turn),
                election::Effect::Followed(reign) => self.on_followed(reign, turn),
                election::Effect::Send(to, message) => {
                    self.send(to, Message::Election(message), turn);
                }
                election::Effect::StoreTerm(term) => turn.out.push(Effect::StoreTerm(term)),
            }
        }
        self.note_vacancy(turn);
    }

    fn on_followed(&mut self, reign: Reign, turn: &mut Turn<'_>) {
        turn.out.push(Effect::Followed(reign));
        self.vacant = false;
        if reign.controller == self.me {
            let members = self.membership.alive().collect();
            self.tell_controller(controller::Input::Reigns { term: reign.term, members }, turn);
            self.look_for_lost(turn);
        } else {
            self.tell_controller(controller::Input::Deposed, turn);
            if self.is_small() {
                self.tell_neighbours(neighbours::Input::Wish(reign.controller), turn);
            }
        }
        self.tell_jobs(job::Input::Controller(Some(reign)), turn);
    }

    /// Jobs are told once that nobody reigns.
    fn note_vacancy(&mut self, turn: &mut Turn<'_>) {
        let vacant = self.election.is_vacant();
        if vacant && !std::mem::replace(&mut self.vacant, vacant) {
            turn.out.push(Effect::MeshChanged);
            self.tell_jobs(job::Input::Controller(None), turn);
        }
    }

    /// Tells the election who could reign, if that has changed.
    pub(super) fn rank(&mut self, now: Instant, at: WallTime, out: &mut Outbox<Effect>) {
        // Whoever was never admitted is no mesh of its own.
        let able = self.report().state != NodeState::Leaving && self.is_admitted();
        let is_first = self.directory.ranked().any(|node| node == self.me);
        let behind = (able && !is_first).then_some(self.me);
        if self.directory.ranked().chain(behind).eq(self.candidates.iter().copied()) {
            return;
        }
        let first: Vec<NodeId> = self.directory.ranked().chain(behind).collect();
        self.candidates.clone_from(&first);
        let complete = first.len() < RANKED_MAX;
        let mut turn = Turn { now, at, out, presenting: false };
        self.tell_election(election::Input::Candidates { first, complete }, &mut turn);
    }

    /// Only whoever may soon have to reign wants to know, for all have to be looked at.
    fn count_ahead(&mut self, turn: &mut Turn<'_>) {
        let before = self.election.reign().map(|reign| reign.controller);
        let ahead = self.directory.ahead_of(self.me, before);
        let ahead = ahead.unwrap_or_else(|| self.directory.living());
        self.tell_election(election::Input::Ahead(ahead), turn);
    }

    pub(super) fn tell_neighbours(&mut self, input: neighbours::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.neighbours.handle(input, &self.directory, turn.now, &mut effects);
        if let Some(circle) = self.neighbours.new_circle() {
            self.tell_membership(membership::Input::Circle(circle), turn);
        }
        for effect in effects.drain() {
            let effect = match effect {
                neighbours::Effect::Dial(node, addresses) => Effect::Dial(node, addresses),
                neighbours::Effect::DialAddress(address) => Effect::DialAddress(address),
                neighbours::Effect::Hangup(node) => {
                    self.tell_membership(membership::Input::Parting(node), turn);
                    Effect::Hangup(node)
                }
                neighbours::Effect::Relay(over, to, message) => {
                    let relayed = self.key.sign(Relayed { to, message });
                    Effect::Send(over, Message::Relay(relayed))
                }
                neighbours::Effect::Send(to, message) => Effect::Send(to, message),
            };
            turn.out.push(effect);
        }
    }

    /// Whether everybody is linked with everybody.
    fn is_small(&self) -> bool {
        self.directory.living() <= neighbours::FULL_MAX + 1
    }

    fn send(&mut self, to: NodeId, message: Message, turn: &mut Turn<'_>) {
        self.tell_neighbours(neighbours::Input::Send(to, message), turn);
    }

    pub(super) fn tell_reporting(&mut self, input: reporting::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.reporting.handle(input, turn.now, &mut effects);
        for effect in effects.drain() {
            match effect {
                reporting::Effect::Changed(report) => {
                    self.directory.insert(report, turn.now);
                    self.directory.mark(self.me, true, turn.now);
                    self.on_node_changed(self.me, turn);
                }
                reporting::Effect::Gossip(report) => {
                    turn.out.push(Effect::Gossip(Gossip::Report(report)));
                }
            }
        }
    }

    pub(super) fn tell_ledger(&mut self, input: ledger::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.ledger.handle(input, &mut effects);
        for effect in effects.drain() {
            match effect {
                ledger::Effect::Changed => self.on_leases_changed(turn),
                other => turn.out.push(Effect::Ledger(other)),
            }
        }
    }

    /// The controller hears of it one hop later; everybody else by gossip.
    fn on_leases_changed(&mut self, turn: &mut Turn<'_>) {
        let before = self.report().age();
        let leases = reporting::Input::Leases(self.ledger.gpus(), self.ledger.gpuless());
        self.tell_reporting(leases, turn);
        if self.report().age() == before {
            return;
        }
        let controller = self.election.reign().map(|reign| reign.controller);
        if let Some(controller) = controller.filter(|controller| *controller != self.me) {
            let report = self.reporting.signed().clone();
            self.send_changed(controller, report, turn);
        }
    }

    pub(super) fn send_changed(&mut self, to: NodeId, report: SignedReport, turn: &mut Turn<'_>) {
        self.send(to, Message::Control(control::Message::Changed(report)), turn);
    }

    pub(super) fn tell_jobs(&mut self, input: job::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        self.jobs.handle(input, turn.now, turn.at, &mut effects);
        for effect in effects.drain() {
            match effect {
                job::Effect::Control(message) => self.tell_the_controller(message, turn),
                // Thousands that have nothing to ask need not all call on a new controller at once.
                job::Effect::Present(asks) if asks.is_empty() && !self.is_small() => {}
                job::Effect::Present(asks) => {
                    let Some(reign) = self.election.reign() else { continue };
                    let report = self.reporting.signed().clone();
                    let present = control::Message::Present { term: reign.term, report, asks };
                    self.tell_the_controller(present, turn);
                }
                // In a large mesh there may be no link yet; the stream waits for one.
                job::Effect::Attach { task, node } => {
                    self.tell_neighbours(neighbours::Input::Wish(node), turn);
                    turn.out.push(Effect::Job(job::Effect::Attach { task, node }));
                }
                job::Effect::Offer { task, grant } => {
                    self.tell_neighbours(neighbours::Input::Wish(grant.value().node), turn);
                    turn.out.push(Effect::Job(job::Effect::Offer { task, grant }));
                }
                other => turn.out.push(Effect::Job(other)),
            }
        }
    }

    pub(super) fn tell_controller(&mut self, input: controller::Input, turn: &mut Turn<'_>) {
        let mut effects = Outbox::new();
        let mut fleet = Fleet::default();
        // To be read by whoever reigns, or is about to.
        if self.controller.reigns() || matches!(input, controller::Input::Reigns { .. }) {
            for (_, entry) in self.directory.iter() {
                match entry.report() {
                    report if !self.met.may_serve(report.node) => {
                        fleet.guests.extend(entry.is_alive().then_some(report));
                    }
                    report if entry.is_alive() => fleet.alive.push(report),
                    report if report.state != NodeState::Leaving => fleet.absent.push(report),
                    _ => {}
                }
            }
        }
        self.controller.handle(input, &fleet, turn.now, &mut effects);
        for controller::Send(to, message) in effects.drain() {
            self.say(to, message, turn);
        }
    }

    /// A controller places nothing where it has lost a link, and in a large mesh nobody else would
    /// open that again.
    pub(super) fn look_for_lost(&mut self, turn: &mut Turn<'_>) {
        if self.controller.reigns() {
            let lost: Vec<NodeId> = self.controller.lost().collect();
            for node in lost {
                self.tell_neighbours(neighbours::Input::Wish(node), turn);
            }
        }
    }

    fn tell_the_controller(&mut self, message: control::Message, turn: &mut Turn<'_>) {
        if let Some(reign) = self.election.reign() {
            self.say(reign.controller, message, turn);
        }
    }

    /// A control message, also to this node itself.
    fn say(&mut self, to: NodeId, message: control::Message, turn: &mut Turn<'_>) {
        if to == self.me {
            self.control(to, message, turn);
        } else {
            self.send(to, Message::Control(message), turn);
        }
    }

    pub(super) fn control(&mut self, from: NodeId, message: control::Message, turn: &mut Turn<'_>) {
        match message {
            control::Message::Changed(report) => self.learn(report, turn),
            control::Message::NotController { follows, .. } => {
                self.on_misdirected(from, follows, turn);
            }
            control::Message::Ask(_)
            | control::Message::Present { .. }
            | control::Message::Withdraw { .. } => self.for_controller(from, message, turn),
            control::Message::Barred { .. }
            | control::Message::Forbidden { .. }
            | control::Message::Full { .. }
            | control::Message::Granted(_)
            | control::Message::Infeasible { .. }
            | control::Message::Queued { .. } => {
                self.tell_jobs(job::Input::Received(from, Box::new(message)), turn);
            }
        }
    }

    fn for_controller(&mut self, from: NodeId, message: control::Message, turn: &mut Turn<'_>) {
        if let control::Message::Present { report, asks, .. } = &message {
            // Its GPUs and what waits for them come together: nobody is served in between.
            turn.presenting = !asks.is_empty();
            self.learn(report.clone(), turn);
            turn.presenting = false;
        }
        if self.election.is_controller() {
            let input = match self.met.may_submit(from) {
                true => controller::Input::Received(from, message),
                false => controller::Input::Barred(from, message),
            };
            self.tell_controller(input, turn);
        } else if let Some(answer) = controller::misdirected(self.election.reign(), &message) {
            self.say(from, answer, turn);
        }
    }

    /// The one taken for the controller is not. If it knows better, it is asked what it knows.
    fn on_misdirected(&mut self, from: NodeId, follows: Option<Reign>, turn: &mut Turn<'_>) {
        let ours = self.election.reign();
        if from != self.me && follows > ours {
            self.tell_election(election::Input::Compare(from), turn);
        }
    }

    /// A message on its way: for this node, or one hop further.
    pub(super) fn relay(&mut self, relayed: Signed<Relayed>, turn: &mut Turn<'_>) {
        let to = relayed.value().to;
        if to == self.me {
            let message = relayed.value().message.clone();
            self.control(relayed.signer(), message, turn);
        } else if self.neighbours.links().contains(&to) {
            self.send(to, Message::Relay(relayed), turn);
        }
    }
}

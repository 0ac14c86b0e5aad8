//! What happens on the network: dials, links, arrivals.

use gpuvine::core::message::Gossip;
use gpuvine::core::node::Input;
use gpuvine::core::time::{Duration, Instant};
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::network::{Cargo, DIAL_FOR, GIVE_UP, LinkId};
use crate::sim::sabotage::Sabotage;

/// How long an idle end takes to notice that the other is gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(20);

impl World {
    pub(crate) fn dial(&mut self, from: usize, to: usize) {
        if self.are_twins(from, to)
            || self.network.link(from, to).is_some()
            || !self.network.dialling.insert((from, to))
        {
            return;
        }
        let there = self.network.delay(from, to) + self.network.delay(to, from);
        let life = self.machines[from].life;
        let silent = self.network.is_cut(from, to) || self.network.is_cut(to, from);
        if silent || self.machines[to].frozen {
            let at = self.now + DIAL_FOR;
            self.agenda.at(at, Event::DialFailed { machine: from, life, peer: to });
        } else if self.machines[to].is_up() {
            self.agenda.at(self.now + there, Event::Dialled { from, life, to });
        } else {
            let at = self.now + there;
            self.agenda.at(at, Event::DialFailed { machine: from, life, peer: to });
        }
    }

    pub(super) fn on_dialled(&mut self, from: usize, life: u32, to: usize) {
        let ends_up = self.machines[from].is_up() && self.machines[from].life == life;
        if !self.network.dialling.remove(&(from, to)) || !ends_up {
            return;
        }
        let cut = self.network.is_cut(from, to) || self.network.is_cut(to, from);
        if cut || !self.machines[to].is_up() {
            self.on_dial_failed(from, to);
            return;
        }
        if self.network.link(from, to).is_some() {
            return;
        }
        // The other end may not have noticed that an older link is gone.
        if let Some(old) = self.network.any_link(from, to) {
            let after = self.network.delay(from, to) * self.rng.random_range(1..20);
            self.reset(old, Some(after));
        }
        let link = self.network.connect(from, to, self.now);
        let delay = self.network.delay(from, to);
        self.agenda.at(self.now, Event::Linked { link, at: from });
        self.agenda.at(self.now + delay, Event::Linked { link, at: to });
    }

    pub(super) fn on_dial_failed(&mut self, machine: usize, peer: usize) {
        self.network.dialling.remove(&(machine, peer));
        let peer = self.machines[peer].id;
        self.fail_openings(machine, peer);
        self.input(machine, Input::DialFailed(peer));
    }

    pub(super) fn on_linked(&mut self, link: LinkId, at: usize) {
        let Some(found) = self.network.get(link) else { return };
        let peer = found.other(at);
        self.network.opened(link, at, self.now);
        self.say(at, "linked", format_args!("n{peer}"));
        let id = self.machines[peer].id;
        self.input(at, Input::Linked(id));
        self.open_waiting(at, id);
    }

    pub(super) fn on_link_gone(&mut self, link: LinkId, at: usize, peer: usize) {
        let id = self.machines[peer].id;
        let other = self.link_to(at, id).map(|(_, other)| other);
        if other.is_some_and(|other| other > link) {
            // There is another connection already: only what was on this one is lost.
            self.lose_streams(link, at);
            return;
        }
        self.say(at, "unlinked", format_args!("n{peer}"));
        // In the daemon two tasks notice, in any order.
        if self.rng.random_bool(0.5) {
            self.lose_streams(link, at);
            self.input(at, Input::Unlinked(id));
        } else {
            self.input(at, Input::Unlinked(id));
            self.lose_streams(link, at);
        }
        if other.is_some() {
            // An older connection with a twin of it: the link is opened anew on that.
            self.input(at, Input::Linked(id));
            self.open_waiting(at, id);
        }
    }

    /// A link breaks: both ends hear of it, soon or after so long.
    pub(crate) fn reset(&mut self, link: LinkId, after: Option<Duration>) {
        let Some((ends, known)) = self.network.reset(link) else { return };
        for end in 0..2 {
            let (at, peer) = (ends[end], ends[1 - end]);
            if known[end] {
                let wait = after.unwrap_or_else(|| self.network.delay(peer, at));
                self.agenda.at(self.now + wait, Event::LinkGone { link, at, peer });
            }
        }
    }

    /// One end is gone; the other hears of it if the network lets it, or has to find out.
    pub(super) fn abandon(&mut self, machine: usize, silently: bool) {
        for link in self.network.of(machine) {
            let Some((ends, known)) = self.network.reset(link) else { continue };
            self.lose_streams_of_dead(link, machine);
            let peer = if ends[0] == machine { ends[1] } else { ends[0] };
            if !known[usize::from(ends[1] == peer)] {
                continue;
            }
            let told = !silently && !self.network.is_cut(machine, peer);
            let wait = if told {
                self.network.delay(machine, peer)
            } else {
                GIVE_UP + Duration::from_millis(self.rng.random_range(0..10_000))
            };
            self.agenda.at(self.now + wait, Event::LinkGone { link, at: peer, peer: machine });
        }
        let gone = |(from, to): &(usize, usize)| *from != machine && *to != machine;
        self.network.dialling.retain(gone);
    }

    pub(crate) fn send(&mut self, link: LinkId, from: usize, cargo: &Cargo) {
        let Some(to) = self.network.get(link).map(|found| found.other(from)) else { return };
        for at in self.network.send(link, from, cargo, self.now).unwrap_or_default() {
            self.agenda.at(at, Event::Arrive { link, to, cargo: cargo.clone() });
        }
        self.watch(link);
    }

    /// Sees to it that a link which cannot deliver is given up in time.
    fn watch(&mut self, link: LinkId) {
        if let Some(since) = self.network.get(link).and_then(|link| link.stuck_since)
            && since == self.now
        {
            self.agenda.at(self.now + GIVE_UP, Event::LinkCheck { link, since });
        }
    }

    pub(super) fn on_link_check(&mut self, link: LinkId, since: Instant) {
        if self.network.get(link).is_some_and(|found| found.stuck_since == Some(since)) {
            let after = Duration::from_millis(self.rng.random_range(0..1_000));
            self.reset(link, Some(after));
        }
    }

    /// Idle links are cut too: their ends find out by keep-alive.
    pub(super) fn check_idle_links(&mut self) {
        for link in self.network.all() {
            let Some([a, b]) = self.network.get(link).map(|found| found.ends) else { continue };
            let cut = self.network.is_cut(a, b) || self.network.is_cut(b, a);
            if let Some(found) = self.network.get(link)
                && cut
                && found.stuck_since.is_none()
            {
                found.stuck_since = Some(self.now);
                let since = self.now;
                self.agenda.at(self.now + KEEPALIVE, Event::LinkCheck { link, since });
            }
        }
    }

    pub(super) fn on_arrive(&mut self, link: LinkId, to: usize, cargo: Cargo) {
        let Some(found) = self.network.get(link) else { return };
        let from = found.other(to);
        if self.sabotage == Some(Sabotage::Echo) {
            self.agenda.at(self.now, Event::Arrive { link, to, cargo: cargo.clone() });
        }
        match cargo {
            Cargo::Frame(stream, frame) => {
                let Some(to_home) = self.streams.get(&stream).map(|stream| stream.home == to)
                else {
                    return;
                };
                self.on_frame(stream, frame, to_home);
            }
            Cargo::Message(message) => {
                let from = self.machines[from].id;
                self.input(to, Input::Received(from, message));
            }
        }
    }

    pub(super) fn gossip(&mut self, from: usize, gossip: &Gossip) {
        for (to, delay) in self.network.reach(from) {
            let life = self.machines[to].life;
            let gossip = gossip.clone();
            self.agenda.at(self.now + delay, Event::Gossip { to, life, gossip });
        }
    }

    /// What waited for the network arrives.
    pub(super) fn unstall(&mut self) {
        for (link, from, cargo) in self.network.unstall() {
            self.send(link, from, &cargo);
        }
    }
}

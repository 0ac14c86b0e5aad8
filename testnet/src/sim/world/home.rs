//! The home's side of streams: as `daemon::home` and the streams of `daemon::hands`.
//!
//! A home holds one stream at a time. Streams that were asked for are opened side by side and come
//! in any order; one that comes while there is another takes its place or is dropped.

use gpuvine::core::id::{JobId, NodeId};
use gpuvine::core::job::Input as Job;
use gpuvine::core::node::Input;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::{Event, World};
use crate::sim::machine::{Home, On, Opening};
use crate::sim::network::{Cargo, LinkId};
use crate::sim::sabotage::Sabotage;
use crate::sim::streams::{First, Frame, Stream, StreamId};

/// How long a stream waits for a link that is being dialled.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// How long a stream may take to be opened.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// How often one that is being opened on a link that is cut looks whether it is open.
const OPEN_AGAIN: Duration = Duration::from_millis(200);

/// What a frame takes within one machine.
const WITHIN: Duration = Duration::from_micros(50);

impl World {
    /// A stream to a node is wanted.
    pub(super) fn connect(&mut self, machine: usize, task: TaskId, node: NodeId, first: First) {
        let home = self.home(machine, task.job);
        self.openings_made += 1;
        let number = self.openings_made;
        let here = &mut self.machines[machine];
        if let Some(home) = here.memory.homes.get_mut(&home) {
            home.openings += 1;
        }
        let (local, life) = (here.id == node, here.life);
        let on = if local { On::Here } else { On::Nothing };
        here.memory.openings.push(Opening { number, home, task, node, first, on });
        if local {
            let at = self.now + WITHIN * self.rng.random_range(1..4);
            self.agenda.at(at, Event::Opened { machine, life, number });
        } else if self.link_to(machine, node).is_some() {
            self.open_waiting(machine, node);
        } else {
            self.agenda.at(self.now + LINK_WAIT, Event::StreamWait { machine, life, number });
        }
    }

    /// The home of a job, made at the first need.
    fn home(&mut self, machine: usize, job: JobId) -> u64 {
        let memory = &mut self.machines[machine].memory;
        if let Some(number) = memory.home_of.get(&job) {
            return *number;
        }
        memory.homes_made += 1;
        let number = memory.homes_made;
        let (stop, stream, latest) = (None, None, None);
        let home = Home { stop, stream, latest, openings: 0, let_go: false };
        memory.homes.insert(number, home);
        memory.home_of.insert(job, number);
        number
    }

    /// There is a link: streams that waited for it are opened on it.
    pub(super) fn open_waiting(&mut self, machine: usize, node: NodeId) {
        let Some((peer, link)) = self.link_to(machine, node) else { return };
        let (now, life) = (self.now, self.machines[machine].life);
        let openings = &mut self.machines[machine].memory.openings;
        let mut begun = Vec::new();
        for opening in openings.iter_mut().filter(|opening| opening.node == node) {
            if opening.on == On::Nothing {
                opening.on = On::Link(link, now);
                begun.push(opening.number);
            }
        }
        for number in begun {
            // There and back, and often later than others that were asked for after it.
            let late = if self.rng.random_bool(0.4) { self.rng.random_range(1..8) } else { 1 };
            let takes = self.network.delay(machine, peer) + self.network.delay(peer, machine);
            let event = Event::Opened { machine, life, number };
            self.agenda.at(now + takes * late, event);
        }
    }

    /// A stream may be open now.
    pub(crate) fn on_opened(&mut self, machine: usize, number: u64) {
        let here = &self.machines[machine];
        let opening = here.memory.openings.iter().find(|opening| opening.number == number);
        let Some(opening) = opening else { return };
        let on = match opening.on {
            On::Here => Some((machine, None)),
            On::Link(link, since) => {
                let peer = self.network.get(link).map(|found| found.other(machine));
                let cut =
                    |peer| self.network.is_cut(machine, peer) || self.network.is_cut(peer, machine);
                if peer.is_some_and(cut) && self.now.since(since) < OPEN_WAIT {
                    let event = Event::Opened { machine, life: here.life, number };
                    self.agenda.at(self.now + OPEN_AGAIN, event);
                    return;
                }
                peer.filter(|peer| !cut(*peer)).map(|peer| (peer, Some(link)))
            }
            On::Nothing => None,
        };
        for opening in self.take_openings(machine, |opening| opening.number == number) {
            match on {
                Some((node, link)) => self.on_connected(machine, opening, node, link),
                None => self.unreachable(machine, &opening),
            }
        }
    }

    /// A stream is there: its home takes it up, in place of another perhaps, or drops it.
    fn on_connected(
        &mut self,
        machine: usize,
        opening: Opening,
        node: usize,
        link: Option<LinkId>,
    ) {
        let Opening { home: of, task, first, .. } = opening;
        // A job that has ended meanwhile has nobody to take it.
        let Some(home) = self.machines[machine].memory.homes.get_mut(&of) else { return };
        let current = home.stream.and(home.latest);
        let wanted = match current {
            Some(_) if self.sabotage == Some(Sabotage::KeepStreams) => false,
            Some(current) => first.replaces(task, current),
            None => home.latest.is_none_or(|latest| task >= latest),
        };
        if wanted {
            home.latest = Some(task);
            let stop = home.stop;
            if let Some(old) = home.stream {
                self.say(machine, "replaces", format_args!("a stream, for {task}"));
                self.hang_up_home(old);
            }
            self.take_up(Stream::new(task, machine, of, node, link), first, stop);
        }
        self.end_home(machine, of);
    }

    fn take_up(&mut self, stream: Stream, first: First, stop: Option<bool>) {
        self.streams_made += 1;
        let id = StreamId(self.streams_made);
        let homes = &mut self.machines[stream.home].memory.homes;
        if let Some(home) = homes.get_mut(&stream.of) {
            home.stream = Some(id);
        }
        self.streams.insert(id, stream);
        let first = match first {
            First::Attach => Frame::Attach,
            First::Open(grant) => Frame::Open(grant),
        };
        self.frame(id, first, false);
        if let Some(now) = stop {
            self.frame(id, Frame::Stop { now }, false);
        }
    }

    /// One opening is over. A home that was let go ends with its last.
    fn end_home(&mut self, machine: usize, of: u64) {
        let homes = &mut self.machines[machine].memory.homes;
        let Some(home) = homes.get_mut(&of) else { return };
        home.openings = home.openings.saturating_sub(1);
        self.end_if_let_go(machine, of);
    }

    fn end_if_let_go(&mut self, machine: usize, of: u64) {
        let homes = &mut self.machines[machine].memory.homes;
        if homes.get(&of).is_some_and(|home| home.let_go && home.openings == 0)
            && let Some(stream) = homes.remove(&of).and_then(|home| home.stream)
        {
            self.hang_up_home(stream);
        }
    }

    /// Sends a frame on a stream.
    pub(super) fn frame(&mut self, id: StreamId, mut frame: Frame, to_home: bool) {
        if let Frame::Ended(Outcome::Exited { code }, _) = &mut frame
            && self.sabotage == Some(Sabotage::FalseOutcomes)
        {
            *code += 1;
        }
        let Some(stream) = self.streams.get(&id) else { return };
        let (from, to) =
            if to_home { (stream.node, stream.home) } else { (stream.home, stream.node) };
        match stream.link {
            Some(link) => self.send(link, from, &Cargo::Frame(id, frame)),
            None => {
                let life = self.machines[to].life;
                let event = Event::Local { machine: to, life, stream: id, frame, to_home };
                self.agenda.at(self.now + WITHIN, event);
            }
        }
    }

    pub(super) fn fail_openings(&mut self, machine: usize, node: NodeId) {
        let waits = |opening: &Opening| opening.node == node && opening.on == On::Nothing;
        for opening in self.take_openings(machine, waits) {
            self.unreachable(machine, &opening);
        }
    }

    pub(super) fn on_stream_wait(&mut self, machine: usize, number: u64) {
        let waits = |opening: &Opening| opening.number == number && opening.on == On::Nothing;
        for opening in self.take_openings(machine, waits) {
            self.unreachable(machine, &opening);
        }
    }

    fn take_openings(&mut self, machine: usize, which: impl Fn(&Opening) -> bool) -> Vec<Opening> {
        self.machines[machine].memory.openings.extract_if(.., |opening| which(opening)).collect()
    }

    fn unreachable(&mut self, machine: usize, opening: &Opening) {
        let task = opening.task;
        self.end_home(machine, opening.home);
        self.say(machine, "no stream", format_args!("{task}"));
        let why = "no link".to_owned();
        self.input(machine, Input::Job(Job::Unreachable { task, why }));
    }

    pub(super) fn order_stop(&mut self, machine: usize, task: TaskId, now: bool) {
        let number = self.home(machine, task.job);
        let Some(home) = self.machines[machine].memory.homes.get_mut(&number) else { return };
        home.stop = Some(now || (home.stream.is_none() && home.stop == Some(true)));
        if let Some(stream) = home.stream {
            self.frame(stream, Frame::Stop { now }, false);
        }
    }

    pub(super) fn acknowledge(&mut self, machine: usize, task: TaskId) {
        let memory = &mut self.machines[machine].memory;
        let number = memory.home_of.remove(&task.job);
        let Some(home) = number.and_then(|number| memory.homes.remove(&number)) else { return };
        if let Some(id) = home.stream {
            self.frame(id, Frame::Acknowledge, false);
            self.close_home(id);
        }
    }

    /// A job that never ran needs no stream.
    pub(super) fn drop_home(&mut self, machine: usize, job: JobId) {
        let memory = &mut self.machines[machine].memory;
        let Some(number) = memory.home_of.remove(&job) else { return };
        if let Some(home) = memory.homes.get_mut(&number) {
            home.let_go = true;
        }
        self.end_if_let_go(machine, number);
    }

    /// The home drops a stream, and the node hears of it.
    fn hang_up_home(&mut self, id: StreamId) {
        self.frame(id, Frame::Closed, false);
        self.close_home(id);
    }

    fn close_home(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.home_open = false;
        let (home, of, done) = (stream.home, stream.of, !stream.node_open);
        if done {
            self.streams.remove(&id);
        }
        let homes = &mut self.machines[home].memory.homes;
        if let Some(entry) = homes.get_mut(&of).filter(|entry| entry.stream == Some(id)) {
            entry.stream = None;
        }
    }

    pub(super) fn close_node(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.node_open = false;
        if !stream.home_open {
            self.streams.remove(&id);
        }
    }

    /// A frame has arrived.
    pub(super) fn on_frame(&mut self, id: StreamId, frame: Frame, to_home: bool) {
        let Some(stream) = self.streams.get(&id) else { return };
        let open = if to_home { stream.home_open } else { stream.node_open };
        if !open {
            return;
        }
        if !to_home {
            self.on_node_frame(id, frame);
            return;
        }
        let (machine, task, since) = (stream.home, stream.task, self.wall());
        let input = match frame {
            Frame::Accepted => Job::Accepted { task, since },
            Frame::Attached => Job::Attached { task, since },
            Frame::Ended(outcome, at) => Job::Ended { task, outcome, at },
            Frame::Refused(refusal) => {
                self.close_home(id);
                Job::Refused { task, refusal }
            }
            Frame::Unknown => {
                self.close_home(id);
                Job::UnknownTask { task }
            }
            Frame::Closed => {
                self.close_home(id);
                Job::StreamLost { task }
            }
            Frame::Open(_) | Frame::Attach | Frame::Stop { .. } | Frame::Acknowledge => return,
        };
        self.say(machine, "hears", format_args!("{task} {}", name(&input)));
        self.input(machine, Input::Job(input));
    }

    /// The link of streams is gone, at this end.
    pub(super) fn lose_streams(&mut self, link: LinkId, at: usize) {
        let on = |stream: &Stream| stream.link == Some(link);
        let lost: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| on(stream)).map(|(id, _)| *id).collect();
        let opens = |opening: &Opening| matches!(opening.on, On::Link(on, _) if on == link);
        for opening in self.take_openings(at, opens) {
            self.unreachable(at, &opening);
        }
        for id in lost {
            let Some(stream) = self.streams.get(&id) else { continue };
            let (home, task, open) = (stream.home, stream.task, stream.home_open);
            if stream.node == at {
                self.close_node(id);
            } else if home == at && open {
                self.close_home(id);
                self.input(at, Input::Job(Job::StreamLost { task }));
            }
        }
    }

    /// The daemon at this end is gone, and with it its end of every stream on the link.
    pub(super) fn lose_streams_of_dead(&mut self, link: LinkId, at: usize) {
        let on = |stream: &Stream| stream.link == Some(link);
        let lost: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| on(stream)).map(|(id, _)| *id).collect();
        for id in lost {
            match self.streams.get(&id) {
                Some(stream) if stream.node == at => self.close_node(id),
                Some(_) => self.close_home(id),
                None => {}
            }
        }
    }
}

fn name(input: &Job) -> String {
    match input {
        Job::Accepted { .. } => "accepted".into(),
        Job::Attached { .. } => "attached".into(),
        Job::Ended { outcome, .. } => format!("ended {outcome:?}"),
        Job::Refused { refusal, .. } => format!("refused {refusal:?}"),
        Job::UnknownTask { .. } => "unknown".into(),
        _ => "lost".into(),
    }
}

//! The home's side of streams: as `daemon::home` and the streams of `daemon::hands`.

use gpuvine::core::id::JobId;
use gpuvine::core::job::Input as Job;
use gpuvine::core::node::Input;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::Duration;

use super::{Event, World};
use crate::sim::machine::Opening;
use crate::sim::network::{Cargo, LinkId};
use crate::sim::sabotage::Sabotage;
use crate::sim::streams::{First, Frame, Stream, StreamId};

/// How long a stream waits for a link that is being dialled.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// What a frame takes within one machine.
const WITHIN: Duration = Duration::from_micros(50);

impl World {
    /// A stream to a node is wanted.
    pub(super) fn connect(&mut self, machine: usize, task: TaskId, node: usize, first: First) {
        let linked = machine == node || self.network.link(machine, node).is_some();
        let here = &mut self.machines[machine];
        here.memory.homes.entry(task.job).or_default();
        if linked {
            self.open(machine, task, node, first);
            return;
        }
        self.openings_made += 1;
        let number = self.openings_made;
        let here = &mut self.machines[machine];
        here.memory.openings.push(Opening { number, task, node, first });
        let life = here.life;
        self.agenda.at(self.now + LINK_WAIT, Event::StreamWait { machine, life, number });
    }

    fn open(&mut self, machine: usize, task: TaskId, node: usize, first: First) {
        let link = self.network.link(machine, node);
        let Some(home) = self.machines[machine].memory.homes.get_mut(&task.job) else { return };
        if home.stream.is_some() {
            // There is a stream; if it is dead, its end will ask for another.
            return;
        }
        self.streams_made += 1;
        let id = StreamId(self.streams_made);
        home.stream = Some(id);
        let stop = home.stop;
        let stream = Stream {
            task,
            home: machine,
            node,
            link,
            home_open: true,
            node_open: true,
            follows: false,
            stop: None,
        };
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

    /// A link is open: streams that waited for it go on.
    pub(super) fn open_waiting(&mut self, machine: usize, peer: usize) {
        for opening in self.take_openings(machine, |opening| opening.node == peer) {
            self.open(machine, opening.task, opening.node, opening.first);
        }
    }

    pub(super) fn fail_openings(&mut self, machine: usize, peer: usize) {
        for opening in self.take_openings(machine, |opening| opening.node == peer) {
            self.unreachable(machine, opening.task);
        }
    }

    pub(super) fn on_stream_wait(&mut self, machine: usize, number: u64) {
        for opening in self.take_openings(machine, |opening| opening.number == number) {
            self.unreachable(machine, opening.task);
        }
    }

    fn take_openings(&mut self, machine: usize, which: impl Fn(&Opening) -> bool) -> Vec<Opening> {
        self.machines[machine].memory.openings.extract_if(.., |opening| which(opening)).collect()
    }

    fn unreachable(&mut self, machine: usize, task: TaskId) {
        self.say(machine, "no stream", format_args!("{task}"));
        let why = "no link".to_owned();
        self.input(machine, Input::Job(Job::Unreachable { task, why }));
    }

    pub(super) fn order_stop(&mut self, machine: usize, task: TaskId, now: bool) {
        let home = self.machines[machine].memory.homes.entry(task.job).or_default();
        home.stop = Some(now || home.stop == Some(true));
        if let Some(stream) = home.stream {
            self.frame(stream, Frame::Stop { now }, false);
        }
    }

    pub(super) fn acknowledge(&mut self, machine: usize, task: TaskId) {
        let Some(home) = self.machines[machine].memory.homes.remove(&task.job) else { return };
        if let Some(id) = home.stream {
            self.frame(id, Frame::Acknowledge, false);
            self.close_home(id);
        }
    }

    /// A job that never ran needs no stream.
    pub(super) fn drop_home(&mut self, machine: usize, job: JobId) {
        let Some(home) = self.machines[machine].memory.homes.remove(&job) else { return };
        if let Some(id) = home.stream {
            self.frame(id, Frame::Closed, false);
            self.close_home(id);
        }
    }

    fn close_home(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.home_open = false;
        let (home, job, done) = (stream.home, stream.task.job, !stream.node_open);
        if done {
            self.streams.remove(&id);
        }
        let homes = &mut self.machines[home].memory.homes;
        if let Some(entry) = homes.get_mut(&job).filter(|entry| entry.stream == Some(id)) {
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

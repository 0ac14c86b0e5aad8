//! The home of one job: its job machine, its disk, and the thin hands between them, as
//! `daemon::home` and the database.
//!
//! Time is left out: a timer goes off whenever it likes, and each call is made at the time zero but
//! for a timer's own. So every order of timers against all else is there, those included that the
//! lengths of the waits forbid.

use gpuvine::core::control::Message;
use gpuvine::core::job::{Effect, Input, JobRecord, JobState, Jobs};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::task::{Outcome, TaskId};
use gpuvine::core::time::{Instant, WallTime};

use super::cast::Cast;
use super::host::Turn;
use super::note::{Answer, Note, Stream};
use super::sabotage::Sabotage;
use super::sights;
use crate::sim::invariants::Violation;

/// What can happen at a home. Notes are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// Its user does not want the job any more.
    Cancel,
    /// The daemon is killed and started again.
    Crash,
    /// The other reign is followed.
    Follow,
    /// A note arrives.
    Hear(u32),
    /// The same, and no stream can be opened then.
    HearAlone(u32),
    /// The stream breaks, at this end.
    LoseStream,
    /// What was written last is on disk.
    Sync,
    /// A timer goes off.
    Timer,
    /// The same, and no stream can be opened then.
    TimerAlone,
}

/// A home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Home {
    number: u8,
    jobs: Jobs,
    disk: Option<JobRecord>,
    /// What was written and is not on disk.
    written: Option<JobRecord>,
    /// The stream that is open, and to which node.
    stream: Option<(Stream, u8)>,
    streams: u8,
    follows: u8,
    /// For the rules: the end of the job as it came to the disk first.
    recorded: Option<JobState>,
    /// For the rules: no stream could be opened when one was wanted.
    pub(super) alone: bool,
}

impl Home {
    /// A home whose job has just been submitted.
    pub(super) fn new(number: usize, turn: &mut Turn<'_>) -> Result<Self, Violation> {
        let mut home = Self {
            number: number as u8,
            jobs: Jobs::new(turn.cast.nodes[number]),
            disk: None,
            written: None,
            stream: None,
            streams: 0,
            follows: 0,
            recorded: None,
            alone: false,
        };
        home.tell(Input::Controller(Some(turn.cast.reigns[0])), true, turn)?;
        home.tell(Input::Submit(Box::new(turn.cast.spec(number))), true, turn)?;
        Ok(home)
    }

    /// What can happen here by itself.
    pub(super) fn events(&self, out: &mut Vec<Event>) {
        if self.follows == 0 {
            out.push(Event::Follow);
        }
        if self.stream.is_some() {
            out.push(Event::LoseStream);
        }
        if self.written.is_some() {
            out.push(Event::Sync);
        }
        if self.jobs.deadline().is_some() {
            out.extend([Event::Timer, Event::TimerAlone]);
        }
        out.extend([Event::Cancel, Event::Crash]);
    }

    /// The job's record on disk.
    pub(super) fn disk(&self) -> Option<&JobRecord> {
        self.disk.as_ref()
    }

    /// The number of the stream that is open.
    pub(super) fn open(&self) -> Option<u8> {
        self.stream.map(|(stream, _)| stream.number)
    }

    /// Whether this is the stream that is open.
    fn is_open(&self, stream: Stream) -> bool {
        self.stream.is_some_and(|(open, _)| open == stream)
    }

    /// Whether a note under way can ever change something here, or where it goes. A stream that
    /// was closed is never opened again, so that answers on it are not heard. A controller is not
    /// believed once a higher one is followed, and a request for an earlier attempt, or for a job
    /// that waits no more, brings grants that are not taken.
    pub(super) fn is_live(&self, note: &Note) -> bool {
        match note {
            Note::Answer { stream, .. } => self.is_open(*stream),
            Note::Ask { desk, task } => {
                let record = self.jobs.find(task.job);
                let may_wait = |it: &JobRecord| {
                    let begun = matches!(it.state, JobState::Running { .. });
                    !begun && !it.state.is_ended() && it.task == *task
                };
                *desk >= self.follows && record.is_some_and(may_wait)
            }
            _ => true,
        }
    }

    /// Something happens.
    pub(super) fn happen(&mut self, event: Event, turn: &mut Turn<'_>) -> Result<(), Violation> {
        self.alone = false;
        match event {
            Event::Cancel => {
                let job = turn.cast.jobs[usize::from(self.number)];
                self.tell(Input::Cancel { job, now: false }, true, turn)
            }
            Event::Crash => self.restart(turn),
            Event::Follow => {
                self.follows = 1;
                self.tell(Input::Controller(Some(turn.cast.reigns[1])), true, turn)
            }
            Event::Hear(_) | Event::HearAlone(_) => Ok(()),
            Event::LoseStream => match self.stream.take() {
                Some(_) => self.tell(Input::StreamLost { task: self.task(turn) }, true, turn),
                None => Ok(()),
            },
            Event::Sync => self.sync(turn),
            Event::Timer | Event::TimerAlone => {
                let links = event == Event::Timer;
                self.tell(Input::Deadline, links, turn)
            }
        }
    }

    /// Forgets what changes nothing any more: a job whose end is on disk opens no stream, whatever
    /// crashes, and one that is on no disk and in no memory neither.
    pub(super) fn forget_dead(&mut self, cast: &Cast) {
        let job = cast.jobs[usize::from(self.number)];
        let ended = self.disk.as_ref().is_some_and(|record| record.state.is_ended());
        if (ended && !cast.is(Sabotage::ReviveJobs)) || self.jobs.find(job).is_none() {
            self.streams = cast.limits.streams;
        }
    }

    /// The attempt that is made now, or was last.
    fn task(&self, turn: &Turn<'_>) -> TaskId {
        let job = turn.cast.jobs[usize::from(self.number)];
        let attempt = self.jobs.find(job).map_or_else(Default::default, |it| it.task.attempt);
        TaskId { job, attempt }
    }

    /// A note arrives.
    pub(super) fn hear(
        &mut self,
        note: &Note,
        links: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), Violation> {
        self.alone = false;
        match note {
            Note::Granted { desk, grant } => {
                let from = turn.cast.nodes[usize::from(*desk)];
                let message = Box::new(Message::Granted(grant.clone()));
                self.tell(Input::Received(from, message), links, turn)
            }
            Note::Answer { stream, task, answer, .. } if self.is_open(*stream) => {
                let (task, since, at) = (*task, WallTime(0), WallTime(0));
                let input = match answer.clone() {
                    Answer::Accepted => Input::Accepted { task, since },
                    Answer::Attached => Input::Attached { task, since },
                    Answer::Ended(outcome) => Input::Ended { task, outcome, at },
                    Answer::Refused(refusal) => Input::Refused { task, refusal },
                    Answer::Unknown => Input::UnknownTask { task },
                };
                if matches!(answer, Answer::Refused(_) | Answer::Unknown) {
                    self.stream = None;
                }
                self.tell(input, links, turn)
            }
            _ => Ok(()),
        }
    }

    /// Tells the jobs something and does what they want.
    fn tell(&mut self, input: Input, links: bool, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let mut out = Outbox::new();
        let timer = input == Input::Deadline;
        let now = self.jobs.deadline().filter(|_| timer).unwrap_or(Instant::ZERO);
        self.jobs.handle(input, now, WallTime(0), &mut out);
        while let Some(effect) = out.pop() {
            match effect {
                Effect::Acknowledge { task } => self.acknowledge(task, turn)?,
                Effect::Attach { task, node } => {
                    let node = turn.cast.node(node) as u8;
                    self.connect(task, node, links, turn, |stream| Note::Attach {
                        node,
                        stream,
                        task,
                    })?;
                }
                Effect::Offer { task, grant } => {
                    let node = turn.cast.node(grant.value().node) as u8;
                    self.connect(task, node, links, turn, |stream| Note::Open {
                        node,
                        stream,
                        grant,
                    })?;
                }
                Effect::Control(Message::Ask(ask)) => self.ask(ask.task, turn),
                Effect::Present(asks) => {
                    asks.iter().for_each(|ask| self.ask(ask.task, turn));
                }
                // It frees what these controllers do not remember.
                Effect::Control(_) => {}
                Effect::Store(record) => {
                    let (job, ended) = (record.spec.id, record.state.is_ended());
                    self.written = Some(*record);
                    // If nothing crashes, nobody sees whether it is on disk; but for the end,
                    // after which the node is told.
                    if !ended && turn.cast.limits.home_crashes == 0 {
                        self.disk = self.written.take();
                    }
                    if ended && turn.cast.is(Sabotage::AcknowledgeEarly) {
                        self.tell(Input::Stored { job, ended }, links, turn)?;
                    }
                }
                // Tasks end at any time anyway, and nobody watches.
                Effect::Changed(_) | Effect::Forget(_) | Effect::Stop { .. } => {}
            }
        }
        Ok(())
    }

    /// Opens a stream, if there is none: one that is dead will ask for another when it ends.
    fn connect(
        &mut self,
        task: TaskId,
        node: u8,
        links: bool,
        turn: &mut Turn<'_>,
        first: impl FnOnce(Stream) -> Note,
    ) -> Result<(), Violation> {
        if self.stream.is_some() {
            return Ok(());
        }
        if !links {
            self.alone = true;
            return self.tell(Input::Unreachable { task, why: String::new() }, links, turn);
        }
        // Beyond the limit a link is waited for and never comes.
        if self.streams < turn.cast.limits.streams {
            self.streams += 1;
            let stream = Stream { job: self.number, number: self.streams };
            self.stream = Some((stream, node));
            turn.notes.push(first(stream));
        }
        Ok(())
    }

    fn ask(&self, task: TaskId, turn: &mut Turn<'_>) {
        if task.attempt.0 <= turn.cast.limits.attempts {
            turn.notes.push(Note::Ask { desk: self.follows, task });
        }
    }

    fn acknowledge(&mut self, task: TaskId, turn: &mut Turn<'_>) -> Result<(), Violation> {
        if !self.disk.as_ref().is_some_and(|record| record.state.is_ended()) {
            let what = format!("{} is acknowledged before its record", turn.cast.task(task));
            return Err(Violation { rule: "recorded_before_acknowledged", what });
        }
        if let Some((_, node)) = self.stream.take() {
            turn.notes.push(Note::Acknowledge { node, task });
        }
        Ok(())
    }

    fn sync(&mut self, turn: &mut Turn<'_>) -> Result<(), Violation> {
        let Some(record) = self.written.take() else { return Ok(()) };
        if let Some(before) = &self.recorded
            && *before != record.state
        {
            let what = format!("the job was {before:?} and is {:?}", record.state);
            return Err(Violation { rule: "outcome_recorded_once", what });
        }
        let (job, ended) = (record.spec.id, record.state.is_ended());
        if ended {
            self.recorded = Some(record.state.clone());
            turn.sights.see(match &record.state {
                JobState::Ended { outcome: Outcome::Lost { .. }, .. } => sights::LOST,
                JobState::Rejected { .. } => sights::REJECTED,
                _ => sights::ANYTHING,
            });
        }
        self.disk = Some(record);
        self.tell(Input::Stored { job, ended }, true, turn)
    }

    fn restart(&mut self, turn: &mut Turn<'_>) -> Result<(), Violation> {
        self.jobs = Jobs::new(turn.cast.nodes[usize::from(self.number)]);
        self.written = None;
        self.stream = None;
        if turn.cast.is(Sabotage::ReviveJobs) {
            self.disk.iter_mut().for_each(revive);
        }
        let reign = turn.cast.reigns[usize::from(self.follows)];
        if let Some(record) = self.disk.clone() {
            self.tell(Input::Recall(Box::new(record)), true, turn)?;
        }
        self.tell(Input::Controller(Some(reign)), true, turn)
    }
}

/// The record of an end becomes one of before.
fn revive(record: &mut JobRecord) {
    if let JobState::Ended { place: Some(place), at, .. } = &record.state {
        let (place, since) = (place.clone(), *at);
        record.state = JobState::Running { place, since, connected: false };
    }
}

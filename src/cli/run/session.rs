//! Watching one job: its output, the user's input, Ctrl-C, and a daemon that goes and comes back.

use std::cell::Cell;
use std::path::PathBuf;

use bytes::Bytes;
use futures::TryStreamExt as _;
use tokio::sync::mpsc;

use super::input::stdin;
use super::printing::{Printing, Stop, Stream};
use crate::api::ApiError;
use crate::api::attach::{self, Frame};
use crate::api::client::{Attached, Client, ClientError};
use crate::api::{JobView, Submit};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::Printer;
use crate::cli::signals::Signals;
use crate::clock;
use crate::core::time::{Duration, Instant};

/// How long a daemon that is gone is waited for, and how long between tries.
const COME_BACK: Duration = Duration::from_secs(60);
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// A job waits so long before the user is told why, and so long before they are told another why.
const PATIENCE: Duration = Duration::from_secs(1);
const NEWS_EVERY: Duration = Duration::from_secs(10);

/// One attached job.
pub(super) struct Session<'a> {
    client: &'a Client,
    /// The node's folder, if the daemon is gone for good when that is.
    folder: Option<PathBuf>,
    printer: &'a Printer,
    quiet: bool,
    signals: Signals,
    printing: Printing,
    input: Option<mpsc::Receiver<Bytes>>,
    /// Whether nothing of standard input is left to be sent, or could be.
    input_done: bool,
    job: Option<JobView>,
    /// Output passed on so far.
    stdout: u64,
    stderr: u64,
    /// Ctrl-C so far.
    interrupts: u32,
    told: Option<String>,
    placed: bool,
    /// When the user may be told why the job waits.
    tell_at: Instant,
}

/// Why the stream ended.
enum End {
    Done(Exit),
    Lost,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        client: &'a Client,
        folder: Option<PathBuf>,
        printer: &'a Printer,
        quiet: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            client,
            folder,
            printer,
            quiet,
            signals: Signals::new()?,
            printing: Printing::default(),
            input: None,
            input_done: true,
            job: None,
            stdout: 0,
            stderr: 0,
            interrupts: 0,
            told: None,
            placed: false,
            tell_at: clock::now() + PATIENCE,
        })
    }

    pub(super) async fn run(mut self, submit: &Submit) -> Result<Exit, Failure> {
        let mut stream = tokio::select! {
            stream = self.client.run(submit) => stream?,
            // The daemon takes back what it was asked for when it finds the user gone.
            signal = self.signals.next() => return Err(interrupted(signal)),
        };
        self.input = submit.stdin.then(stdin);
        self.input_done = !submit.stdin;
        loop {
            match self.watch(stream).await? {
                End::Done(exit) => {
                    if let Some(job) = self.job.filter(|_| self.printer.json()) {
                        self.printer.value(&job, |_| String::new())?;
                    }
                    return Ok(exit);
                }
                End::Lost => stream = self.come_back().await?,
            }
        }
    }

    async fn watch(&mut self, stream: Attached) -> Result<End, Failure> {
        let (reader, writer) = tokio::io::split(stream);
        let mut frames = attach::frames(reader);
        // Writing a frame may not be cancelled in its middle; and input that the task does not read
        // may not hold up its output.
        let mut input = self.input.take();
        let input_done = &Cell::new(self.input_done);
        let mut writer = Some(writer);
        let write = async move {
            while let (Some(source), Some(writer)) = (&mut input, &mut writer) {
                let bytes = source.recv().await;
                let frame = bytes.map_or(Frame::StdinEof, Frame::Stdin);
                // If the stream is broken, reading says so too.
                if attach::write(writer, &frame).await.is_err() {
                    break;
                }
                if frame == Frame::StdinEof {
                    input_done.set(true);
                    break;
                }
            }
            // The writer stays: its end would be the end of the stream.
            std::future::pending::<()>().await;
        };
        tokio::pin!(write);
        let mut ended: Option<Box<JobView>> = None;
        loop {
            let tell_at = self.tell_at();
            let frame = tokio::select! {
                biased;
                printed = self.printing.next(), if self.printing.is_full() || ended.is_some() => {
                    match (printed, &ended) {
                        (Err(stop), _) => return cannot_print(stop).map(End::Done),
                        (Ok(true), Some(job)) => return Ok(End::Done(self.on_ended(job))),
                        (Ok(_), _) => continue,
                    }
                }
                frame = frames.try_next(), if ended.is_none() && !self.printing.is_full() => frame,
                () = &mut write => continue,
                signal = self.signals.next() => match self.on_signal(signal) {
                    Some(exit) => return Ok(End::Done(exit)),
                    None => continue,
                },
                () = clock::sleep_until(tell_at) => {
                    self.tell_reason();
                    continue;
                }
            };
            let Ok(Some(frame)) = frame else {
                self.input_done = input_done.get();
                return Ok(End::Lost);
            };
            ended = self.on_frame(frame);
        }
    }

    /// The first Ctrl-C asks for an end, the second demands it, the third does not wait for it.
    fn on_signal(&mut self, signal: u8) -> Option<Exit> {
        self.interrupts += 1;
        // A job that is not known yet is cancelled by going away.
        let job = self.job.as_ref().map(|job| job.id.clone());
        let (Some(job), 1..=2) = (job, self.interrupts) else {
            return Some(Exit::Task(128 + signal));
        };
        if self.interrupts == 1 && !self.quiet {
            self.printer.say("cancelling; once more for SIGKILL");
        }
        let (client, now) = (self.client.clone(), self.interrupts > 1);
        tokio::spawn(async move {
            // What comes of it is seen on the stream.
            let _ = client.cancel(&job, now).await;
        });
        None
    }

    /// The job, if it has ended.
    fn on_frame(&mut self, frame: Frame) -> Option<Box<JobView>> {
        match frame {
            Frame::Stdout(bytes) => {
                self.stdout += bytes.len() as u64;
                // Standard output is for the one value that programs read.
                let json = self.printer.json();
                self.printing.push(if json { Stream::Stderr } else { Stream::Stdout }, bytes);
            }
            Frame::Stderr(bytes) => {
                self.stderr += bytes.len() as u64;
                self.printing.push(Stream::Stderr, bytes);
            }
            Frame::Gap(gap) => {
                let passed =
                    if gap.output == "stdout" { &mut self.stdout } else { &mut self.stderr };
                *passed = gap.to;
                self.printer.say(&format!(
                    "bytes {} to {} of {} are lost: the node keeps no more",
                    gap.from, gap.to, gap.output
                ));
            }
            Frame::Unread(why) => {
                self.printer.say(&format!("the rest of the output is lost: {why}"));
            }
            Frame::Job(job) => self.on_job(*job),
            Frame::Ended(job) => return Some(job),
            Frame::Stdin(_) | Frame::StdinEof => {}
        }
        None
    }

    fn on_job(&mut self, job: JobView) {
        if job.state == "running" {
            self.tell_place(&job);
        }
        let lost = job.state == "running" && job.reason.is_some();
        let was_lost =
            self.job.as_ref().is_some_and(|old| old.state == "running" && old.reason.is_some());
        if lost != was_lost && !self.quiet {
            let text = job.reason.clone().unwrap_or_else(|| "its node is back".into());
            self.printer.say(&text);
        }
        self.job = Some(job);
    }

    /// Tells once where the job runs, or ran if it was over before that could be told.
    fn tell_place(&mut self, job: &JobView) {
        let Some(node) = job.node_name.as_deref().filter(|_| !self.placed) else { return };
        self.placed = true;
        if self.quiet {
            return;
        }
        let on = match job.gpus.as_slice() {
            [] => format!("{node}, no GPU"),
            [gpu] => format!("{node}, GPU {gpu}"),
            gpus => format!("{node}, GPUs {}", gpus.join(", ")),
        };
        self.printer.say(&format!("job {} runs on {on}", job.id));
    }

    /// When the user is told why the job waits: not at once, and not again.
    fn tell_at(&self) -> Option<Instant> {
        let job = self.job.as_ref().filter(|job| job.state == "waiting")?;
        (!self.quiet && job.reason != self.told).then_some(self.tell_at)
    }

    fn tell_reason(&mut self) {
        if let Some(job) = &self.job {
            self.tell_at = clock::now() + NEWS_EVERY;
            self.told.clone_from(&job.reason);
            let why = job.reason.as_deref().unwrap_or("no reason is known");
            self.printer.say(&format!("job {} waits: {why}", job.id));
        }
    }

    fn on_ended(&mut self, job: &JobView) -> Exit {
        if job.exit_code.is_some() {
            self.tell_place(job);
        }
        let explain = matches!(job.state.as_str(), "rejected" | "lost")
            || (job.state == "cancelled" && !self.placed);
        if explain {
            let why = job.reason.as_deref().unwrap_or("no reason is known");
            self.printer.say(&format!("job {}: {why}", job.id));
        }
        self.job = Some(job.clone());
        match job.exit_code {
            // Never ran: cancelled by the user like any interrupted program, or refused.
            None if job.state == "cancelled" => Exit::Task(130),
            None => Exit::Failed,
            Some(code) => Exit::Task(u8::try_from(code).unwrap_or(255)),
        }
    }

    /// The daemon is gone; the task is not. Waits for the daemon and watches again.
    async fn come_back(&mut self) -> Result<Attached, Failure> {
        let Some(job) = self.job.as_ref().map(|job| job.id.clone()) else {
            let lost = ClientError::Lost("the connection broke before the job was known".into());
            return Err(lost.into());
        };
        let until = clock::now() + COME_BACK;
        // One that is restarted is soon back.
        let mut tell_at = Some(clock::now() + PATIENCE);
        loop {
            if self.folder.as_ref().is_some_and(|folder| !folder.exists()) {
                let told = format!("job {job} is gone, and with it its node and all its files");
                return Err(Failure { exit: Exit::Failed, error: ApiError::new("lost", told) });
            }
            if tell_at.take_if(|at| *at <= clock::now()).is_some() {
                let told = format!("the daemon is gone; waiting for it to come back (job {job})");
                self.printer.say(&told);
            }
            let attached = tokio::select! {
                attached = self.client.attach(&job, self.stdout, self.stderr) => attached,
                signal = self.signals.next() => return Err(self.given_up(&job, signal)),
            };
            match attached {
                Ok(stream) => {
                    if tell_at.is_none() {
                        self.printer.say("the daemon is back");
                    }
                    // Its input has ended with the first stream; a result of half an input must
                    // not look like a result.
                    if !std::mem::replace(&mut self.input_done, true) {
                        self.printer.say("the task's standard input was cut off: it gets no more");
                    }
                    return Ok(stream);
                }
                Err(ClientError::Api(error)) if error.code == "no_such_job" => {
                    let told =
                        format!("job {job} is lost: its daemon was killed before it was kept");
                    let error = ApiError::new("lost", told);
                    return Err(Failure { exit: Exit::Failed, error }.hint("submit it again"));
                }
                // The old daemon, on its last breath: not what is waited for.
                Err(ClientError::Api(error)) if error.code == "stopping" => {}
                Err(error @ ClientError::Api(_)) => return Err(error.into()),
                Err(error) if clock::now() >= until => {
                    let told: Failure = error.into();
                    return Err(told.hint(format!("the task may run on: `gpuvine logs -f {job}`")));
                }
                Err(_) => {}
            }
            tokio::select! {
                () = clock::sleep_until(Some(clock::now() + TRY_AGAIN)) => {}
                signal = self.signals.next() => return Err(self.given_up(&job, signal)),
            }
        }
    }

    /// The user goes; without a daemon there is nobody to tell.
    fn given_up(&self, job: &str, signal: u8) -> Failure {
        self.printer.say(&format!("job {job} is not cancelled: no daemon answers"));
        interrupted(signal)
    }
}

fn interrupted(signal: u8) -> Failure {
    let error = ApiError::new("interrupted", "interrupted");
    Failure { exit: Exit::Task(128 + signal), error }
}

/// The end of a user who takes no more output.
fn cannot_print(stop: Stop) -> Result<Exit, Failure> {
    match stop {
        // As `yes | head` does: whoever read it has enough. The daemon ends the job.
        Stop::Closed => Ok(Exit::Task(128 + 13)),
        Stop::Failed(error) => Err(error.into()),
    }
}

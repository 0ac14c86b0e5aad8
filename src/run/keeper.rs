//! The keeper: a small process that stands over one task.
//!
//! When it has seen a task out it waits for another, for to make a new process costs more than most
//! of what a short task needs. Nothing of a task outlives it in its keeper.
//!
//! It has no threads and no runtime: it waits in `poll` for its child's output, for children that
//! end, and for its daemon, which may come and go. It is the leader of its own session and the
//! subreaper of all that the task starts, so it knows when really nothing is left. Only then does
//! it say that the task is gone.

mod child;
mod io;
mod server;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use self::child::{Child, SpawnError};
use self::io::{Control, Drain, Waiting};
use super::folder::{Ending, OUTCOME, SOCKET, begin, save};
use super::processes::{descendants, signal};
use super::protocol::{Start, ToDaemon, ToKeeper, Totals};
use crate::clock;
use crate::core::task::Outcome;
use crate::core::time::{Duration, Instant, earliest};

/// Bytes written to an output file at once.
pub(super) const WRITE_MAX: usize = 64 * 1024;

/// How often SIGKILL is repeated while something is left, and after how long that is called stuck.
const KILL_AGAIN: Duration = Duration::from_secs(1);
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// After how long listening is tried again for which the disk had no room.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Runs the server of keepers, whose standard input is a socket of the daemon that started it, and
/// each keeper. What a keeper is for comes over a socket of its own; the argument only tells people
/// and `ps` whose it is.
pub fn keeper_main(_: &[OsString]) -> ExitCode {
    // The terminal's Ctrl-C is for the daemon.
    let _ = rustix::process::setsid();
    let ended = server::serve().and_then(|keeper| keeper.map_or(Ok(()), keep));
    // Nobody reads its standard error; its daemon sees that it is gone.
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Stands over one task after the other.
fn keep(daemon: UnixStream) -> std::io::Result<()> {
    // A session of its own: it has just been forked, so it leads none.
    rustix::process::setsid()?;
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = signals()?;
    // A keeper may be made before there is a task, so that the task need not wait for it. If its
    // daemon ends while there is none, so does it.
    let mut waiting = Waiting::new(daemon);
    while let Some((start, mut control)) = waiting.next()? {
        std::env::set_current_dir(OsStr::from_bytes(&start.folder))?;
        // Before anything is started: a daemon that comes back takes the task away from a keeper
        // that has not begun, and then counts on it that nothing will be.
        let started = begin(Path::new("."))
            .map_err(|error| SpawnError {
                why: format!("the node cannot lock and rename the task's record: {error}"),
                elsewhere: true,
            })
            .and_then(|begun| Child::spawn(&start).map(|child| (begun, child)));
        let (begun, child) = match started {
            Ok(started) => started,
            Err(SpawnError { why, elsewhere }) => {
                control.send(&ToDaemon::StartFailed { why, elsewhere });
                control.finish();
                return Ok(());
            }
        };
        let mut keeper = Keeper::new(child, &start, control, begun)?;
        keeper.control.send(&ToDaemon::Started);
        let Some(next) = keeper.run(&signals)? else { return Ok(()) };
        waiting = next;
    }
    Ok(())
}

/// Children that end wake `poll`; a friendly SIGTERM to everything does not end the keeper, which
/// has to see the task out.
fn signals() -> std::io::Result<UnixStream> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    for ignored in [SIGHUP, SIGINT, SIGTERM] {
        // A handler, not SIG_IGN: the task would inherit that.
        signal_hook::flag::register(ignored, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(read)
}

/// A keeper at work.
struct Keeper {
    child: Child,
    stdout: Drain,
    stderr: Drain,
    control: Control,
    /// What tells a daemon that comes back that there is a keeper.
    begun: Option<File>,
    /// Where the next daemon comes in, once one is gone.
    listener: Option<UnixListener>,
    /// When listening is tried again: the disk may be full.
    listen_at: Option<Instant>,
    told: Totals,
    grace: Duration,
    /// How the command ended, once it has.
    outcome: Option<Outcome>,
    /// Whether any process of the task is left.
    alive: bool,
    /// When SIGKILL is due, if an end is wanted.
    kill_at: Option<Instant>,
    /// When it was sent first, and whether that was found to be of no use.
    killed_at: Option<Instant>,
    stuck: bool,
}

impl Keeper {
    fn new(
        mut child: Child,
        start: &Start,
        control: Control,
        begun: File,
    ) -> std::io::Result<Self> {
        let (stdout, stderr) = child.take_outputs()?;
        Ok(Self {
            child,
            stdout,
            stderr,
            control,
            begun: Some(begun),
            listener: None,
            listen_at: None,
            told: Totals::default(),
            grace: Duration::from_millis(start.grace_ms),
            outcome: None,
            alive: true,
            kill_at: None,
            killed_at: None,
            stuck: false,
        })
    }

    /// Sees the task out; answers the daemon, if it has been there all the time.
    fn run(mut self, signals: &UnixStream) -> std::io::Result<Option<Waiting>> {
        loop {
            self.reap();
            self.read_outputs();
            if let (false, Some(outcome)) = (self.alive, self.outcome.clone()) {
                return self.finish(outcome);
            }
            self.on_time(clock::now());
            self.tell_totals();
            self.listen(clock::now());
            self.wait(signals)?;
            drain(signals);
            self.accept();
            self.on_control();
            self.child.feed();
            if let Some(taken) = self.child.news_of_stdin() {
                self.control.send(&ToDaemon::StdinTaken(taken));
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, signals: &UnixStream) -> std::io::Result<()> {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(self.listener.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        fds.extend(self.control.poll_fd());
        fds.extend([&self.stdout, &self.stderr].into_iter().filter_map(Drain::poll_fd));
        fds.extend(self.child.poll_fd());
        let timeout = self.deadline().map(|at| {
            let left = at.since(clock::now());
            rustix::time::Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let stuck_at = self.killed_at.filter(|_| !self.stuck).map(|at| at + STUCK_AFTER);
        earliest([self.kill_at, stuck_at, self.listen_at])
    }

    fn on_time(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| at <= now) {
            signal(&descendants(std::process::id()), Signal::KILL);
            self.killed_at.get_or_insert(now);
            self.kill_at = Some(now + KILL_AGAIN);
        }
        if !self.stuck && self.killed_at.is_some_and(|at| now.since(at) >= STUCK_AFTER) {
            self.stuck = true;
            let left = descendants(std::process::id());
            let pids: Vec<String> =
                left.iter().take(8).map(|pid| pid.as_raw_nonzero().to_string()).collect();
            let why = format!("SIGKILL does not end process {}", pids.join(", "));
            self.control.send(&ToDaemon::Stuck(why));
        }
    }

    /// Collects children that have ended.
    fn reap(&mut self) {
        let mut ended = false;
        loop {
            match wait(WaitOptions::NOHANG) {
                // Once it has been collected its number may be another's.
                Ok(Some((pid, status))) if pid == self.child.pid() && self.outcome.is_none() => {
                    let outcome = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Outcome::Exited { code },
                        (None, Some(signal)) => Outcome::Signaled { signal },
                        (None, None) => continue,
                    };
                    self.outcome = Some(outcome);
                    ended = true;
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                // No child, and through the subreaper no descendant either.
                Err(_) => {
                    self.alive = false;
                    break;
                }
            }
        }
        if ended && self.alive {
            self.end_the_rest();
        }
    }

    /// What the command leaves behind is asked to end, and then made to.
    fn end_the_rest(&mut self) {
        self.control.send(&ToDaemon::CommandEnded);
        signal(&descendants(std::process::id()), Signal::TERM);
        // Also if none was seen: one that forks while it is looked for is easily missed.
        self.kill_by(clock::now() + self.grace);
    }

    fn kill_by(&mut self, at: Instant) {
        self.kill_at = earliest([self.kill_at, Some(at)]);
    }

    fn read_outputs(&mut self) {
        self.stdout.read();
        self.stderr.read();
    }

    /// Tells how much output there is, when the daemon has taken up what it was told before.
    fn tell_totals(&mut self) {
        let totals = self.totals();
        if totals != self.told && self.control.is_idle() {
            self.told = totals;
            self.control.send(&ToDaemon::Totals(totals));
        }
    }

    fn totals(&self) -> Totals {
        Totals { stdout: self.stdout.total(), stderr: self.stderr.total() }
    }

    /// Without a daemon, lets the next come in. With one there is no need: few tasks outlive it.
    fn listen(&mut self, now: Instant) {
        let is_due = self.listen_at.is_none_or(|at| at <= now);
        if self.listener.is_some() || !self.control.is_lost() || !is_due {
            return;
        }
        // A curious task may have taken the name. Relative: a Unix socket's path may have 107
        // bytes, a state folder's more.
        let _ = std::fs::remove_file(SOCKET);
        let listener = UnixListener::bind(SOCKET)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        self.listen_at = listener.is_err().then_some(now + LISTEN_AGAIN);
        self.listener = listener.ok();
    }

    /// A daemon comes, perhaps after a restart: the latest is the one that is talked to.
    fn accept(&mut self) {
        while let Some(Ok((daemon, _))) = self.listener.as_ref().map(UnixListener::accept) {
            let Ok(control) = Control::new(daemon) else { continue };
            self.control = control;
            self.control.send(&ToDaemon::Hello {
                stdin: self.child.stdin_totals(),
                ended: self.outcome.is_some(),
            });
            self.told = self.totals();
            self.control.send(&ToDaemon::Totals(self.told));
        }
    }

    fn on_control(&mut self) {
        self.control.write();
        while let Some(message) = self.control.receive() {
            match message {
                ToKeeper::Start(_) => {}
                ToKeeper::Stdin(bytes) => self.child.queue(&bytes),
                ToKeeper::StdinEof => self.child.end_stdin(),
                ToKeeper::Stop(grace_ms) => self.on_stop(Duration::from_millis(grace_ms)),
            }
        }
    }

    fn on_stop(&mut self, grace: Duration) {
        if grace > Duration::ZERO {
            // The whole group, as Ctrl-C in a shell would; if it is gone, whoever is left.
            let gone = self.outcome.is_some();
            if gone || kill_process_group(self.child.pid(), Signal::TERM).is_err() {
                signal(&descendants(std::process::id()), Signal::TERM);
            }
        }
        self.kill_by(clock::now() + grace);
    }

    /// Nothing is left: what is in the pipes is all there will be.
    fn finish(mut self, outcome: Outcome) -> std::io::Result<Option<Waiting>> {
        self.read_outputs();
        let totals = self.totals();
        let ending = Ending { outcome: outcome.clone(), totals };
        // On a full disk the daemon that listens hears of it all the same.
        let saved = save(Path::new(OUTCOME), &ending).map_err(std::io::Error::other);
        // The next to be told of in this file has a keeper of its own.
        self.begun = None;
        std::env::set_current_dir("/")?;
        self.control.send(&ToDaemon::Totals(totals));
        self.control.send(&ToDaemon::Gone(outcome));
        let waiting = self.control.finish();
        saved.map(|()| waiting.filter(|_| self.listener.is_none()))
    }
}

/// Empties the pipe of signals: that there were some is all that matters.
fn drain(mut signals: &UnixStream) {
    let mut buffer = [0; 64];
    while std::io::Read::read(&mut signals, &mut buffer).is_ok_and(|len| len > 0) {}
}

/// A process group that a child leads.
type Group = Pid;

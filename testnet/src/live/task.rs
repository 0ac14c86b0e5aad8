//! A task that counts: it shows whether it was touched, and whether its output goes on.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::watch;

use super::mesh::{Node, PATIENCE};

/// First its process id, then a number every 20 ms.
const SCRIPT: &str = "echo $$; n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done";

/// A counting task, and the `gpuvine run` that watches it.
#[derive(Debug)]
pub struct Counter {
    watcher: Child,
    pid: u32,
    /// The last number that came, or what was wrong with it.
    last: watch::Receiver<Result<u64, String>>,
}

impl Counter {
    /// Submits one on `home`; on the node `place` if that is given. Returns when it counts.
    ///
    /// # Errors
    /// If it does not begin to count in time.
    pub async fn start(home: &Node, place: Option<&str>) -> Result<Self> {
        let mut arguments = vec!["run", "-q", "--name", "counter", "--gpus", "1"];
        if let Some(place) = place {
            arguments.extend(["--node", place]);
        }
        arguments.extend(["--", "sh", "-c", SCRIPT]);
        let mut watcher = home
            .gpuvine(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = watcher.stdout.take().context("it has a standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let pid = first.context("it begins")??.context("it has not ended")?;
        let pid = pid.parse().context("its first line is its process id")?;
        let (numbers, last) = watch::channel(Ok(0));
        tokio::spawn(count(lines, numbers));
        let mut counter = Self { watcher, pid, last };
        counter.goes_on().await?;
        Ok(counter)
    }

    /// Waits for a number that had not come yet, and checks that none was lost or repeated.
    ///
    /// # Errors
    /// If none comes in time, or one is not the one after the last.
    pub async fn goes_on(&mut self) -> Result<()> {
        self.last.borrow_and_update();
        let changed = tokio::time::timeout(PATIENCE, self.last.changed()).await;
        changed.context("its output goes on")?.context("its output has not ended")?;
        self.last.borrow().clone().map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// Whether the very process that was started is alive.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub async fn runs_on(&self) -> Result<bool> {
        match tokio::fs::read_to_string(format!("/proc/{}/stat", self.pid)).await {
            // A zombie has run; nobody has asked how it ended.
            Ok(stat) => Ok(!stat.contains(") Z ")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the task as a user does, with Ctrl-C, and waits until `gpuvine run` has ended.
    ///
    /// # Errors
    /// If it does not end in time.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.watcher.id().context("it is watched")?;
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("a process id")?, rustix::process::Signal::INT)?;
        let ended = tokio::time::timeout(PATIENCE, self.watcher.wait()).await;
        ended.context("Ctrl-C ends it")??;
        Ok(())
    }
}

/// Reads numbers as they come, so that the last is never an old one.
async fn count(
    mut lines: Lines<BufReader<ChildStdout>>,
    numbers: watch::Sender<Result<u64, String>>,
) {
    let mut last = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        let wrong = line.parse() != Ok(last + 1);
        last += 1;
        if wrong {
            drop(numbers.send_replace(Err(format!("after {} came {line}", last - 1))));
            return;
        }
        drop(numbers.send_replace(Ok(last)));
    }
}

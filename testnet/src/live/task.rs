//! A task that counts: it shows whether it was touched, and whether its output goes on.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::mesh::{Node, PATIENCE};

/// First its process id, then a number every 20 ms.
const SCRIPT: &str = "echo $$; n=0; while :; do n=$((n+1)); echo $n; sleep 0.02; done";

/// A counting task, and the `gpuvine run` that watches it.
#[derive(Debug)]
pub struct Counter {
    watcher: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pid: u32,
    last: u64,
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
        let mut counter =
            Self { watcher, lines: BufReader::new(stdout).lines(), pid: 0, last: 0 };
        counter.pid = counter.line().await?.parse().context("its first line is its process id")?;
        counter.goes_on().await?;
        Ok(counter)
    }

    /// Waits for the next number, and checks that none was lost or repeated.
    ///
    /// # Errors
    /// If none comes in time, or it is not the one after the last.
    pub async fn goes_on(&mut self) -> Result<()> {
        let number: u64 = self.line().await?.parse().context("it counts")?;
        ensure!(number == self.last + 1, "after {} came {number}", self.last);
        self.last = number;
        Ok(())
    }

    /// Whether the very process that was started is alive.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub async fn runs_on(&self) -> Result<bool> {
        Ok(tokio::fs::try_exists(format!("/proc/{}", self.pid)).await?)
    }

    /// Ends the task as a user does, with Ctrl-C, and waits until `gpuvine run` has ended.
    ///
    /// # Errors
    /// If it does not end in time.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.watcher.id().context("it is watched")?;
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("a process id")?, rustix::process::Signal::INT)?;
        let drain = async {
            while let Ok(Some(_)) = self.lines.next_line().await {}
            self.watcher.wait().await
        };
        tokio::time::timeout(Duration::from_secs(30), drain).await??;
        Ok(())
    }

    async fn line(&mut self) -> Result<String> {
        tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .context("its output goes on")??
            .context("its output has not ended")
    }
}

//! Tasks that are submitted as users do: each by a `gpuvine run` of its own.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::live::figures::Spread;
use crate::live::mesh::{Mesh, Node};
use crate::stopwatch::Stopwatch;

/// Tasks before those that are timed.
const WARM_UP: usize = 20;

/// Copies of which the median is told.
const COPIES: usize = 3;

/// How long one task takes.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    /// From the start of `gpuvine run` until the task's process says what time it is.
    pub(super) start: Spread,
    /// From the start of `gpuvine run` to the first byte of output.
    pub(super) first_byte: Spread,
    /// From the start of `gpuvine run` of `true` to its end.
    pub(super) exit: Spread,
}

/// How many tasks are done per second.
#[derive(Debug, Serialize)]
pub(super) struct Rate {
    /// Submissions at once.
    pub(super) in_flight: usize,
    /// Tasks per second, from the first submission to the last exit.
    pub(super) per_second: f64,
    /// How long each took.
    pub(super) each: Spread,
}

/// Tasks one after the other.
pub(super) async fn latency(node: &Node, tasks: usize) -> Result<Latency> {
    let mut exits = Vec::new();
    for number in 0..WARM_UP + tasks {
        let watch = Stopwatch::start();
        succeed(node.gpuvine(&["run", "-q", "--gpus", "1", "--", "true"])).await?;
        if number >= WARM_UP {
            exits.push(watch.ms());
        }
    }
    let (mut starts, mut first_bytes) = (Vec::new(), Vec::new());
    for _ in 0..tasks {
        let mut command = node.gpuvine(&["run", "-q", "--gpus", "1", "--", "date", "+%s.%N"]);
        let began = unix_ms()?;
        let watch = Stopwatch::start();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut output = child.stdout.take().context("it has a standard output")?;
        let mut first = [0; 64];
        let len = output.read(&mut first).await?;
        first_bytes.push(watch.ms());
        let mut text = first[..len].to_vec();
        output.read_to_end(&mut text).await?;
        let status = child.wait().await?;
        ensure!(status.success(), "`gpuvine run -- date` ended with {status}");
        let text = String::from_utf8_lossy(&text);
        let said: f64 = text.trim().parse().with_context(|| format!("`date` said {text:?}"))?;
        starts.push(said * 1_000.0 - began);
    }
    Ok(Latency {
        start: Spread::of(starts).context("tasks ran")?,
        first_byte: Spread::of(first_bytes).context("tasks ran")?,
        exit: Spread::of(exits).context("tasks ran")?,
    })
}

/// Tasks submitted on all nodes in turn, so many at once.
pub(super) async fn rate(
    mesh: &Mesh,
    asks: &[&str],
    tasks: usize,
    in_flight: usize,
) -> Result<Rate> {
    let arguments = [&["run", "-q"], asks, &["--", "true"]].concat();
    let commands: Vec<Command> = (0..tasks)
        .map(|number| mesh.nodes[number % mesh.nodes.len()].gpuvine(&arguments))
        .collect();
    let waiting = Arc::new(Mutex::new(commands));
    let mut submitters = JoinSet::new();
    let watch = Stopwatch::start();
    for _ in 0..in_flight {
        let waiting = Arc::clone(&waiting);
        submitters.spawn(async move {
            let mut times = Vec::new();
            loop {
                let next = waiting.lock().await.pop();
                let Some(command) = next else { return anyhow::Ok(times) };
                let watch = Stopwatch::start();
                succeed(command).await?;
                times.push(watch.ms());
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = submitters.join_next().await {
        times.extend(done.context("a submitter did not panic")??);
    }
    let per_second = tasks as f64 / (watch.ms() / 1_000.0);
    Ok(Rate { in_flight, per_second, each: Spread::of(times).context("tasks ran")? })
}

/// A task's output to a `gpuvine run` elsewhere, in MiB per second; the median of some.
pub(super) async fn output(node: &Node, bytes: u64) -> Result<f64> {
    let count = bytes.to_string();
    let arguments = ["run", "-q", "--gpus", "1", "--", "head", "-c", &count, "/dev/zero"];
    median(bytes, async || {
        let mut child =
            node.gpuvine(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("it has a standard output")?;
        // Read in large pieces: what is measured is not who measures.
        let mut output = BufReader::with_capacity(1 << 16, output);
        let came = tokio::io::copy_buf(&mut output, &mut tokio::io::sink()).await?;
        let status = child.wait().await?;
        ensure!(status.success(), "`gpuvine run -- head` ended with {status}");
        ensure!(came == bytes, "{came} of {bytes} bytes came");
        Ok(())
    })
    .await
}

/// Input from a `gpuvine run` to a task elsewhere, in MiB per second; the median of some.
pub(super) async fn input(node: &Node, bytes: u64) -> Result<f64> {
    let arguments = ["run", "-q", "--gpus", "1", "--", "wc", "-c"];
    median(bytes, async || {
        let mut child =
            node.gpuvine(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("it has a standard input")?;
        let writer = tokio::spawn(async move {
            let zeros = [0; 1 << 16];
            let mut left = bytes;
            while left > 0 {
                let len = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
                stdin.write_all(&zeros[..len]).await?;
                left -= len as u64;
            }
            stdin.shutdown().await
        });
        let output = child.wait_with_output().await?;
        writer.await.context("the writer did not panic")??;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said.trim() == bytes.to_string(), "`wc` counted {said:?} of {bytes} bytes");
        Ok(())
    })
    .await
}

async fn median(bytes: u64, once: impl AsyncFn() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..COPIES {
        let watch = Stopwatch::start();
        once().await?;
        times.push(watch.ms());
    }
    let time = Spread::of(times).context("copies were made")?.median_ms;
    Ok(bytes as f64 / f64::from(1 << 20) / (time / 1_000.0))
}

async fn succeed(mut command: Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().await?;
    ensure!(
        output.status.success(),
        "a task ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "what `date` in the task says is compared with it")]
fn unix_ms() -> Result<f64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(since.as_secs_f64() * 1_000.0)
}

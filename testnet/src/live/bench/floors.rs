//! What this machine can do at best: nothing that gpuvine does can be faster than these.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::streams;
use crate::live::figures::Spread;
use crate::stopwatch::Stopwatch;

/// How often the small ones are measured.
const ROUNDS: usize = 200;

/// Bytes of a record that is synced: about as much as a job's.
const RECORD: usize = 1_024;

/// The floors.
#[derive(Debug, Serialize)]
pub(super) struct Floors {
    /// From the start of `true` to its end.
    pub(super) spawn: Spread,
    /// A record written and synced.
    pub(super) fdatasync: Spread,
    /// A copy over TCP on loopback.
    pub(super) tcp_mib_s: f64,
    /// The same over a libp2p stream, TLS and yamux, and nothing around it.
    pub(super) libp2p_mib_s: f64,
}

/// Measures them.
pub(super) async fn measure(folder: &Path, bytes: u64) -> Result<Floors> {
    let mut spawns = Vec::new();
    for _ in 0..ROUNDS {
        let watch = Stopwatch::start();
        let mut command = tokio::process::Command::new("true");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().await?;
        ensure!(status.success(), "`true` ended with {status}");
        spawns.push(watch.ms());
    }
    let path = folder.join("floor");
    let syncs = tokio::task::spawn_blocking(move || -> Result<Vec<f64>> {
        let mut file = std::fs::File::create(&path)?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let watch = Stopwatch::start();
            file.write_all(&[7; RECORD])?;
            file.sync_data()?;
            times.push(watch.ms());
        }
        std::fs::remove_file(&path)?;
        Ok(times)
    });
    Ok(Floors {
        spawn: Spread::of(spawns).context("rounds were run")?,
        fdatasync: Spread::of(syncs.await??).context("rounds were run")?,
        tcp_mib_s: streams::tcp(bytes).await?,
        libp2p_mib_s: streams::libp2p(bytes).await?,
    })
}

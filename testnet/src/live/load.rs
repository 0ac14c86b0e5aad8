//! Users that submit one task after the other, from every node, whatever happens to the mesh.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use gpuvine::api::client::Client;
use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::mesh::{Mesh, Node};
use super::witness::{Told, Witness};

/// How long one submission may take, faults included.
const PATIENCE: Duration = Duration::from_secs(120);

/// The exit code of `gpuvine` without a daemon.
const NO_DAEMON: i32 = 3;

/// A user on each of some nodes.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    users: JoinSet<Result<Vec<Told>>>,
    ended: Arc<(AtomicUsize, Notify)>,
}

impl Load {
    /// Begins on every node of the mesh; each task takes this many seconds.
    pub fn start(mesh: &Mesh, witness: &Witness, seconds: f64) -> Self {
        let (stop, stopping) = watch::channel(false);
        let ended = Arc::default();
        let mut users = JoinSet::new();
        for node in &mesh.nodes {
            let call = caller(node, witness, seconds);
            users.spawn(user(node.client(), call, stopping.clone(), Arc::clone(&ended)));
        }
        Self { stop, users, ended }
    }

    /// Waits until this many tasks more have succeeded.
    ///
    /// # Errors
    /// If that does not come about in time.
    pub async fn goes_on(&self, more: usize) -> Result<()> {
        let (count, changed) = &*self.ended;
        let wanted = count.load(Ordering::Acquire) + more;
        let wait = async {
            loop {
                let notified = changed.notified();
                if count.load(Ordering::Acquire) >= wanted {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(super::mesh::PATIENCE, wait).await.context("work goes on")
    }

    /// Nobody submits more; waits until all that was submitted has ended, and tells how.
    ///
    /// # Errors
    /// If a submission does not end in time.
    pub async fn stop(mut self) -> Result<Vec<Told>> {
        self.stop.send_replace(true);
        let mut told = Vec::new();
        while let Some(user) = self.users.join_next().await {
            told.extend(user??);
        }
        Ok(told)
    }
}

/// Makes the call of a node's nth submission: the name of the job, and the command.
fn caller(
    node: &Node,
    witness: &Witness,
    seconds: f64,
) -> impl Fn(usize) -> (String, Command) + Send + use<> {
    let (witness, call) = (witness.clone(), node.caller());
    let name = node.name.clone();
    move |number| {
        let job = format!("{name}-{number}");
        let arguments = witness.run(&job, seconds);
        (job, call(&arguments))
    }
}

async fn user(
    home: Client,
    call: impl Fn(usize) -> (String, Command) + Send,
    stopping: watch::Receiver<bool>,
    ended: Arc<(AtomicUsize, Notify)>,
) -> Result<Vec<Told>> {
    let mut all = Vec::new();
    for number in 0.. {
        if *stopping.borrow() {
            break;
        }
        let (job, mut command) = call(number);
        let output = command.stdin(Stdio::null()).output();
        let Ok(output) = tokio::time::timeout(PATIENCE, output).await else {
            let seen = home.jobs(true).await?.into_iter().find(|seen| seen.name == job);
            bail!("{job} did not end; its home sees {seen:#?}");
        };
        let output = output?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            // Its daemon is being started again.
            Some(NO_DAEMON) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Some(0) => {
                ended.0.fetch_add(1, Ordering::AcqRel);
                ended.1.notify_waiters();
            }
            _ => {}
        }
        all.push(Told { job, code: output.status.code(), stderr });
    }
    Ok(all)
}

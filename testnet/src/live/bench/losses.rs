//! Daemons that are killed, and how soon the others know and go on.

use anyhow::{Context as _, Result};
use gpuvine::api::client::Client;
use tokio::task::JoinSet;

use crate::live::figures::Spread;
use crate::live::mesh::{Mesh, PATIENCE};
use crate::stopwatch::Stopwatch;

/// From the SIGKILL of a daemon that is not the controller until every other knows that it is dead.
pub(super) async fn deaths(mesh: &mut Mesh, kills: usize) -> Result<Spread> {
    lose(mesh, kills, Role::Member).await
}

/// From the SIGKILL of the controller until every other daemon follows the next.
pub(super) async fn failovers(mesh: &mut Mesh, kills: usize) -> Result<Spread> {
    lose(mesh, kills, Role::Controller).await
}

/// What a daemon is that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Controller,
    Member,
}

/// Kills a daemon so many times, times how long it takes until every other knows, and starts it
/// again.
async fn lose(mesh: &mut Mesh, kills: usize, role: Role) -> Result<Spread> {
    let mut times = Vec::new();
    for round in 0..kills {
        let reigns = mesh.settle().await?;
        let others: Vec<String> = mesh.nodes.iter().map(|node| node.name.clone()).collect();
        let others: Vec<&String> = others.iter().filter(|name| **name != reigns).collect();
        let lost = match role {
            Role::Controller => reigns.clone(),
            Role::Member => others[round % others.len()].clone(),
        };
        let mut watchers = JoinSet::new();
        for node in mesh.nodes.iter().filter(|node| node.name != lost) {
            watchers.spawn(known(node.client(), role, lost.clone()));
        }
        let watch = Stopwatch::start();
        mesh.node(&lost)?.kill().await?;
        while let Some(known) = watchers.join_next().await {
            known.context("a watcher did not panic")??;
        }
        times.push(watch.ms());
        mesh.node(&lost)?.start(None).await?;
    }
    Spread::of(times).context("a daemon was killed")
}

/// Waits until a daemon knows that another is lost, looking whenever anything has changed there.
async fn known(client: Client, role: Role, lost: String) -> Result<()> {
    let wait = async {
        let mut seen = 0;
        loop {
            let known = match role {
                Role::Controller => {
                    let controller = client.status().await?.controller;
                    controller.is_some_and(|controller| controller.name != lost)
                }
                Role::Member => {
                    let nodes = client.nodes().await?;
                    !nodes.iter().any(|node| node.name == lost && node.is_alive())
                }
            };
            if known {
                return Ok(());
            }
            seen = client.changes(seen).await?;
        }
    };
    let done = tokio::time::timeout(PATIENCE, wait).await;
    done.with_context(|| format!("the death of {lost} was not heard of everywhere in time"))?
}

//! The demo: a mesh of five machines is founded, used, robbed of its controller, and goes on.
//!
//! Every step is the real program: daemons as processes, commands as processes, SIGKILL for the
//! controller. What it says is measured while it happens.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::figures::{Figure, Spread, table};
use super::mesh::{Mesh, Node, Program, View};
use super::talk::Talk;
use super::task::Counter;
use crate::stopwatch::Stopwatch;

/// The machines: name and GPUs.
const NODES: [(&str, &str); 5] = [
    ("alpha", "sim:4xA100-80G"),
    ("beta", "sim:4xA100-80G"),
    ("gamma", "sim:2xRTX4090-24G"),
    ("delta", "sim:2xRTX4090-24G"),
    ("epsilon", "none"),
];

/// Short tasks that are timed, and those before them that are not.
const SHORT_TASKS: usize = 200;
const WARM_UP: usize = 20;

/// What the demo found.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// From the start of a daemon to its being a member, for each that joined.
    pub join: Spread,
    /// From the start of `gpuvine run` to the first byte of output.
    pub first_byte: Spread,
    /// From the start of `gpuvine run --gpus 1 -- true` to its end.
    pub short_task: Spread,
    /// From the SIGKILL of the controller until every other node follows the next one.
    pub failover_ms: f64,
    /// From the SIGKILL of the controller to the end of a short task submitted right after it.
    pub placed_after_kill_ms: f64,
    /// Tasks that ran during the failover.
    pub tasks_before: usize,
    /// How many of them ran on, as the same process.
    pub tasks_untouched: usize,
    /// From the restart of the killed daemon until it knew its task again.
    pub found_again_ms: f64,
}

/// Plays the demo.
///
/// # Errors
/// If anything in it does not happen: the demo is a test that a person can read.
pub async fn play(program: &Program, talk: &Talk) -> Result<Findings> {
    let mut mesh = Mesh::empty()?;
    talk.title("Five machines, no head node");
    talk.step(
        "each machine is a daemon of its own, a process here on loopback; GPUs are simulated",
    );
    talk.step(&format!("all files are in {}, and go with it at the end", mesh.root().display()));
    let join = found(&mut mesh, program, talk).await?;

    talk.title("Submitting from any peer");
    let first_byte = submit_from_three(&mesh, talk).await?;
    let short_task = short_tasks(mesh.node("epsilon")?, talk).await?;

    talk.title("Losing the controller");
    let outcome = lose_controller(&mut mesh, talk).await?;

    talk.step("cleaning up: every daemon, task and file of the demo is removed");
    mesh.stop().await?;
    Ok(Findings {
        join,
        first_byte,
        short_task,
        failover_ms: outcome.failover_ms,
        placed_after_kill_ms: outcome.placed_ms,
        tasks_before: outcome.before,
        tasks_untouched: outcome.untouched,
        found_again_ms: outcome.found_again_ms,
    })
}

impl Findings {
    /// The table at the end.
    pub fn table(&self) -> String {
        let figure = |what: &str, value, unit, promise| Figure {
            what: what.to_owned(),
            value,
            unit,
            promise,
        };
        table(&[
            figure("join the mesh by a ticket, median", self.join.median_ms, "ms", None),
            figure(
                "gpuvine run: start to first output, median",
                self.first_byte.median_ms,
                "ms",
                None,
            ),
            figure(
                "gpuvine run -- true: start to exit, median",
                self.short_task.median_ms,
                "ms",
                Some("at most 10 ms"),
            ),
            figure("the same, 90th percentile", self.short_task.p90_ms, "ms", None),
            figure("the same, 99th percentile", self.short_task.p99_ms, "ms", Some("no cliff")),
            figure("the same, slowest", self.short_task.max_ms, "ms", None),
            figure("controller killed: until all follow the next", self.failover_ms, "ms", None),
            figure(
                "controller killed: until a new task is done",
                self.placed_after_kill_ms,
                "ms",
                Some("at most 3,000 ms"),
            ),
            figure(
                "controller killed: running tasks untouched",
                self.tasks_untouched as f64,
                "tasks",
                Some("all"),
            ),
            figure(
                "daemon restarted: until its task is found again",
                self.found_again_ms,
                "ms",
                None,
            ),
        ])
    }
}

async fn found(mesh: &mut Mesh, program: &Program, talk: &Talk) -> Result<Spread> {
    let mut joins = Vec::new();
    for (name, gpus) in NODES {
        let founder = mesh.nodes.is_empty();
        talk.step(&match founder {
            true => format!("{name}, {}: founds the mesh", owns(gpus)),
            false => format!("{name}, {}: joins by a ticket of alpha", owns(gpus)),
        });
        let watch = Stopwatch::start();
        mesh.add(program, name, &["--gpus", gpus]).await?;
        let members = mesh.nodes.len();
        mesh.node(name)?
            .until("it is a member and knows the controller", |view| {
                let alive = view.nodes.iter().filter(|node| node.is_alive()).count();
                (alive == members && view.controller().is_some()).then_some(())
            })
            .await?;
        if !founder {
            joins.push(watch.ms());
        }
    }
    let controller = mesh.settle().await?;
    talk.done(&format!(
        "all five see each other, and have elected {controller} as controller: it hands GPUs out"
    ));
    talk.step("on epsilon: gpuvine nodes");
    talk.show(&mesh.node("epsilon")?.output(&["nodes"]).await?);
    Spread::of(joins).context("somebody joined")
}

async fn submit_from_three(mesh: &Mesh, talk: &Talk) -> Result<Spread> {
    let mut times = Vec::new();
    let script = "echo \"hello from $GPUVINE_NODE, GPU $CUDA_VISIBLE_DEVICES\"";
    for (from, asks) in [
        ("alpha", &["--gpus", "1", "--gpu-model", "rtx4090"][..]),
        ("gamma", &["--gpus", "2", "--gpu-mem", "40G"][..]),
        ("epsilon", &["--gpus", "1"][..]),
    ] {
        let node = mesh.nodes.iter().find(|node| node.name == from).context("it was started")?;
        let arguments = [&["run"], asks, &["--", "sh", "-c", script]].concat();
        talk.step(&format!("on {from}: gpuvine run {} -- sh -c 'echo hello ...'", asks.join(" ")));
        let watch = Stopwatch::start();
        let output = node.output(&arguments).await?;
        times.push(watch.ms());
        talk.show(&output);
    }
    Spread::of(times).context("three tasks ran")
}

async fn short_tasks(node: &Node, talk: &Talk) -> Result<Spread> {
    talk.step(&format!(
        "on epsilon, which has no GPU: gpuvine run --gpus 1 -- true, {SHORT_TASKS} times in a row"
    ));
    let mut times = Vec::new();
    for run in 0..WARM_UP + SHORT_TASKS {
        let watch = Stopwatch::start();
        let status = node
            .gpuvine(&["run", "-q", "--gpus", "1", "--", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .await?;
        ensure!(status.success(), "`gpuvine run -- true` ended with {status}");
        if run >= WARM_UP {
            times.push(watch.ms());
        }
    }
    let spread = Spread::of(times).context("tasks ran")?;
    talk.done(&format!(
        "from submission to exit: half took {:.1} ms or less, 99 of 100 took {:.1} ms or less",
        spread.median_ms, spread.p99_ms
    ));
    Ok(spread)
}

/// What a machine owns, in words.
fn owns(gpus: &str) -> String {
    match gpus.strip_prefix("sim:") {
        Some(gpus) => gpus.replace('x', " x "),
        None => "no GPU".into(),
    }
}

struct Lost {
    failover_ms: f64,
    placed_ms: f64,
    before: usize,
    untouched: usize,
    found_again_ms: f64,
}

async fn lose_controller(mesh: &mut Mesh, talk: &Talk) -> Result<Lost> {
    let old = mesh.settle().await?;
    let homes: Vec<String> = mesh
        .nodes
        .iter()
        .map(|node| node.name.clone())
        .filter(|name| *name != old)
        .take(3)
        .collect();
    talk.step(&format!(
        "three tasks that print 1, 2, 3, ..., submitted on {}; the first runs on {old} itself",
        homes.join(", ")
    ));
    let mut counters = Vec::new();
    for home in &homes {
        // One of them on the controller's own machine: its daemon dies, the task does not.
        let place = if counters.is_empty() { Some(old.as_str()) } else { None };
        counters.push(Counter::start(mesh.node(home)?, place).await?);
    }
    let home = mesh.node(&homes[0])?;
    let running = |view: &View| view.gpus.iter().filter(|gpu| gpu.state == "leased").count();
    home.until("all three run", |view| (running(view) == 3).then_some(())).await?;
    talk.step(&format!("on {}: gpuvine gpus", homes[0]));
    talk.show(&home.output(&["gpus"]).await?);

    talk.step(&format!("kill -9 of the daemon of {old}, the controller"));
    let watch = Stopwatch::start();
    mesh.node(&old)?.kill().await?;
    let quick = mesh.node(&homes[2])?.output(&["run", "-q", "--gpus", "1", "--", "true"]);
    quick.await.context("new work is placed after the controller is gone")?;
    let placed_ms = watch.ms();
    talk.done(&format!(
        "a new task, submitted on {} at once, was placed and done {placed_ms:.0} ms after the kill",
        homes[2]
    ));

    let (new, failover_ms) = next_controller(mesh, &old, &watch).await?;
    talk.done(&format!("{new} is the controller now; nobody had to do anything"));

    let mut untouched = 0;
    for counter in &mut counters {
        untouched += usize::from(counter.runs_on().await?);
    }
    talk.done(&format!(
        "{untouched} of {} counting tasks run on as the same processes, also the one on {old}",
        counters.len()
    ));

    talk.step(&format!("starting the daemon of {old} again"));
    let watch = Stopwatch::start();
    let node = mesh.node(&old)?;
    node.start(None).await?;
    let name = old.clone();
    node.until("its own task is on its board again", move |view: &View| {
        view.gpus.iter().any(|gpu| gpu.node_name == name && gpu.job.is_some()).then_some(())
    })
    .await?;
    let found_again_ms = watch.ms();
    counters[0].goes_on().await?;
    talk.done("it found its running task again; the count goes on, and no number is missing");
    for counter in counters {
        counter.stop().await?;
    }
    Ok(Lost { failover_ms, placed_ms, before: homes.len(), untouched, found_again_ms })
}

/// Waits until all living nodes follow another controller than `old`; its name, and when.
async fn next_controller(mesh: &Mesh, old: &str, watch: &Stopwatch) -> Result<(String, f64)> {
    let mut name = String::new();
    for node in mesh.nodes.iter().filter(|node| node.runs()) {
        name = node
            .until("there is a new controller", |view| {
                view.controller().filter(|name| *name != old).map(str::to_owned)
            })
            .await?;
    }
    Ok((name, watch.ms()))
}

/// How long the demo may take at most before it is called stuck.
pub const LIMIT: Duration = Duration::from_secs(180);

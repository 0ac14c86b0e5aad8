//! Faults on real networks: hosts in network namespaces whose links are cut, daemons that freeze
//! and are killed, disks that are full. Users submit all the while; a witness that knows nothing of
//! gpuvine's own state judges what ran.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use testnet::live::disk::SmallDisk;
use testnet::live::lan::{Lan, PORT};
use testnet::live::load::Load;
use testnet::live::mesh::{Mesh, Node, View};
use testnet::live::task::Counter;
use testnet::live::witness::{Told, Witness};

use crate::lan::{self, lan};
use crate::support::{code, gpuvine, program, text};

/// A network with a mesh on it, users on every host, and a witness.
struct Stage {
    lan: Lan,
    mesh: Mesh,
    witness: Witness,
    load: Load,
}

impl Stage {
    /// `None` where there can be no network of our own.
    async fn set(hosts: u8) -> Option<Self> {
        let lan = lan(hosts)?;
        let gpus = vec!["sim:2xA100-80G"; usize::from(hosts)];
        let mesh = mesh(&lan, &gpus).await;
        let witness = Witness::new(mesh.root()).unwrap();
        let load = Load::start(&mesh, &witness, 0.05);
        load.goes_on(10).await.unwrap();
        Some(Self { lan, mesh, witness, load })
    }

    /// The faults are over: the mesh comes together, every submission ends well, no GPU is held
    /// and no process is left.
    async fn ends_well(self) {
        self.ends(|_| false).await;
    }

    /// The same, but for submissions that may fail.
    async fn ends(self, may_fail: impl Fn(&Told) -> bool) {
        self.mesh.settle().await.unwrap();
        self.load.goes_on(10).await.unwrap();
        let told = self.load.stop().await.unwrap();
        let ran = self.witness.judge(&told).unwrap();
        let failed: Vec<_> = told.iter().filter(|told| told.code != Some(0)).collect();
        assert!(failed.iter().all(|told| may_fail(told)), "{failed:#?}");
        assert!(ran >= told.len() - failed.len());
        for node in &self.mesh.nodes {
            node.until("all GPUs are free", all_free).await.unwrap();
        }
        assert_eq!(self.witness.living(), [0; 0]);
        self.mesh.stop().await.unwrap();
    }
}

fn all_free(view: &View) -> Option<()> {
    view.gpus.iter().all(|gpu| gpu.state == "free").then_some(())
}

async fn mesh(lan: &Lan, gpus: &[&str]) -> Mesh {
    lan::mesh(lan, &format!("/ip4/10.77.0.N/tcp/{PORT}"), &["--no-mdns"], gpus).await
}

/// The number of the host with this name.
fn number(name: &str) -> u8 {
    name.strip_prefix("host").and_then(|number| number.parse::<u8>().ok()).unwrap() - 1
}

/// Waits until every node of a half sees exactly that half alive, and follows one of it.
async fn half_settles(mesh: &Mesh, half: &[u8]) {
    let nodes = half.iter().map(|index| &mesh.nodes[usize::from(*index)]);
    let names: BTreeSet<&str> = nodes.clone().map(|node| node.name.as_str()).collect();
    for node in nodes {
        node.until("its half is alone and has a controller", |view| {
            let alive = view.nodes.iter().filter(|node| node.is_alive());
            // Those that joined at the same time are in no order that is known here.
            let alive: BTreeSet<&str> = alive.map(|node| node.name.as_str()).collect();
            (alive == names && view.controller().is_some_and(|name| names.contains(name)))
                .then_some(())
        })
        .await
        .unwrap();
    }
}

/// Two against three: both halves work on, and are one mesh again when the network is.
#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_that_splits_works_in_both_halves_and_heals() {
    let Some(stage) = Stage::set(5).await else { return };
    stage.lan.split(&[0, 1], &[2, 3, 4]).unwrap();
    half_settles(&stage.mesh, &[0, 1]).await;
    half_settles(&stage.mesh, &[2, 3, 4]).await;
    stage.lan.heal().unwrap();
    stage.ends_well().await;
}

/// The controller alone in its half: the others choose another, and it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_cut_off_is_replaced_and_comes_back() {
    let Some(stage) = Stage::set(4).await else { return };
    let controller = number(&stage.mesh.settle().await.unwrap());
    let others: Vec<u8> = (0..4).filter(|index| *index != controller).collect();
    stage.lan.split(&[controller], &others).unwrap();
    half_settles(&stage.mesh, &[controller]).await;
    half_settles(&stage.mesh, &others).await;
    stage.lan.heal().unwrap();
    stage.ends_well().await;
}

/// A node that only its job's home cannot reach, and not even both ways, is nobody's dead: the home
/// is told that it does not hear, and hears all of it when it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_one_way_is_noticed_and_mended() {
    for (from, to) in [(0, 1), (1, 0)] {
        let Some(lan) = lan(3) else { return };
        let mesh = mesh(&lan, &["none", "sim:1xA100-80G", "none"]).await;
        let home = &mesh.nodes[0];
        let mut counter = Counter::start(home, Some("host2")).await.unwrap();
        lan.cut(from, to).unwrap();
        let lost = |view: &View| {
            let job = view.jobs.first()?;
            job.reason.as_ref()?.contains("does not answer").then_some(())
        };
        home.until("its job's node does not answer", lost).await.unwrap();
        let alive = |view: &View| view.nodes.iter().all(|node| node.is_alive()).then_some(());
        mesh.nodes[2].until("the third sees both", alive).await.unwrap();
        assert!(counter.runs_on().await.unwrap());
        lan.heal().unwrap();
        counter.goes_on().await.unwrap();
        counter.stop().await.unwrap();
        mesh.stop().await.unwrap();
    }
}

/// A daemon that is stopped for a moment, and the controller that is stopped for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_freeze_are_gone_and_come_back() {
    let Some(stage) = Stage::set(4).await else { return };
    for seconds in [5, 60] {
        let controller = number(&stage.mesh.settle().await.unwrap());
        let frozen = &stage.mesh.nodes[usize::from(controller)];
        frozen.signal(Signal::STOP).unwrap();
        // The fault itself, not a wait for a state.
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        frozen.signal(Signal::CONT).unwrap();
        stage.load.goes_on(10).await.unwrap();
    }
    stage.ends_well().await;
}

/// Daemons are killed one after the other, as fast as they come back, and their tasks run on. What
/// was submitted at a daemon that was killed before it had a place is told to be lost, and only
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_are_killed_in_a_loop_lose_no_running_task() {
    let Some(mut stage) = Stage::set(4).await else { return };
    for round in 0..12 {
        let node = &mut stage.mesh.nodes[round % 4];
        node.kill().await.unwrap();
        node.start(None).await.unwrap();
        stage.load.goes_on(1).await.unwrap();
    }
    // Before the daemon had taken it, before it was kept, before it had a place.
    let lost =
        ["answer was lost", "killed before it was kept", "restarted while it was being placed"];
    stage.ends(|told| lost.iter().any(|lost| told.stderr.contains(lost))).await;
}

/// A node whose disk is full keeps its task and its place in the mesh, leaves new tasks to others,
/// and is as before when there is space again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_kills_nothing_and_is_got_over() {
    let Some(lan) = lan(3) else { return };
    let mut mesh = mesh(&lan, &["none", "sim:1xA100-80G"]).await;
    let disk = SmallDisk::mount(&mesh.root().join("host3"), 16).unwrap();
    let listen = format!("/ip4/10.77.0.3/tcp/{PORT}");
    let arguments = ["--no-mdns", "--listen", &listen, "--gpus", "sim:2xA100-80G"];
    let program = lan.on(2, &program());
    mesh.join(Node::anywhere(&program, mesh.root(), "host3", &arguments)).await.unwrap();
    mesh.settle().await.unwrap();
    let (home, small) = (&mesh.nodes[0], &mesh.nodes[2]);
    let counter = Counter::start(home, Some("host3")).await.unwrap();
    disk.fill().unwrap();
    for (node, name) in [(home, "first"), (small, "second"), (home, "third")] {
        let arguments = ["run", "-q", "--name", name, "--", "sh", "-c", "echo $GPUVINE_NODE"];
        let output = gpuvine(node, &arguments, b"").await;
        assert_eq!((code(&output), text(&output.stdout)), (0, "host2\n".into()), "{output:?}");
    }
    assert!(counter.runs_on().await.unwrap());
    disk.free().unwrap();
    counter.stop().await.unwrap();
    let output = gpuvine(home, &["run", "-q", "--node", "host3", "--", "echo", "hi"], b"").await;
    assert_eq!((code(&output), text(&output.stdout)), (0, "hi\n".into()), "{output:?}");
    // What could not be kept then is kept now.
    let small = mesh.node("host3").unwrap();
    small.leave().await.unwrap();
    small.start(None).await.unwrap();
    let known = |view: &View| view.jobs.iter().any(|job| job.name == "second").then_some(());
    small.until("it remembers its job", known).await.unwrap();
    mesh.stop().await.unwrap();
}

//! Keepers: what they leave behind when they are killed, and what they never leave behind.

use std::path::Path;

use testnet::live::leftovers::belonging;
use testnet::live::task::Counter;

use crate::support::{code, gpuvine, mesh, text};

/// A keeper that is killed takes its task with it: the daemon ends what is left, the job is lost,
/// the GPU is free.
#[tokio::test]
async fn a_killed_keeper_costs_its_task_and_nothing_else() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let counter = Counter::start(alpha, None).await.unwrap();
    let tasks = alpha.dir.join("tasks");
    let keeper = belonging(&tasks)
        .into_iter()
        .find(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // One that waits for its task is not in the task's folder yet.
            command.windows(8).any(|part| part == b"__keeper") && place(*pid).starts_with(&tasks)
        })
        .expect("there is a keeper");
    let keeper = rustix::process::Pid::from_raw(keeper.try_into().unwrap()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    alpha
        .until("the job is lost and its GPU free", |view| {
            let lost = view.jobs.iter().any(|job| job.state == "lost");
            (lost && view.gpus[0].state == "free").then_some(())
        })
        .await
        .unwrap();
    assert!(!counter.runs_on().await.unwrap());
    mesh.stop().await.unwrap();
}

/// The process that keepers are forked from is nobody's fate: a task that runs goes on without it,
/// and the next one gets another.
#[tokio::test]
async fn a_killed_fork_server_costs_nothing() {
    let mesh = mesh(&[("alpha", "sim:2xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let counter = Counter::start(alpha, None).await.unwrap();
    let tasks = alpha.dir.join("tasks");
    let idle: Vec<u32> = belonging(&tasks)
        .into_iter()
        .filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.windows(8).any(|part| part == b"__keeper") && place(*pid) == Path::new("/")
        })
        .collect();
    assert!(!idle.is_empty(), "there is a server");
    for pid in idle {
        let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        // Perhaps the end of the server has ended its spare keeper's wait.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    for _ in 0..3 {
        let output = gpuvine(alpha, &["run", "-q", "--", "true"], b"").await;
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    }
    assert!(counter.runs_on().await.unwrap());
    mesh.stop().await.unwrap();
}

/// A hundred short tasks leave no process and no open file behind.
#[tokio::test]
async fn a_hundred_tasks_leave_nothing_open() {
    let mesh = mesh(&[("alpha", "sim:4xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let files = || {
        let pid = alpha.pid().expect("it runs");
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    };
    let run = async || {
        let output = gpuvine(alpha, &["run", "-q", "--", "true"], b"").await;
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    };
    for _ in 0..10 {
        run().await;
    }
    let before = files();
    for _ in 0..100 {
        run().await;
    }
    assert!(files() <= before + 10, "{before} files before, {} after", files());
    alpha
        .until("all GPUs are free", |view| {
            view.gpus.iter().all(|gpu| gpu.state == "free").then_some(())
        })
        .await
        .unwrap();
    // A keeper leaves its task's folder before it says that the task is gone; some wait for others.
    let tasks = alpha.dir.join("tasks");
    let left = belonging(&tasks);
    assert!(left.iter().all(|pid| !place(*pid).starts_with(&tasks)), "{left:?}");
    assert!(left.len() <= 1 + 1 + 8, "the daemon, a server, and what it keeps waiting: {left:?}");
    mesh.stop().await.unwrap();
}

/// A keeper that has seen one task out takes the next, and nothing of the first is there: neither
/// its input, nor an order that came too late for it, nor its place.
#[tokio::test]
async fn one_keeper_sees_many_tasks_out_and_tells_none_of_another() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let mut keepers = std::collections::BTreeSet::new();
    for round in 0..20 {
        let secret = format!("SECRET={round}");
        // It reads nothing of what it is sent.
        let ask = ["run", "-q", "-e", &secret, "--", "sh", "-c", "echo $PPID; echo mine > file"];
        let input = vec![b'x'; 1 << 18];
        let output = gpuvine(alpha, &ask, &input).await;
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        keepers.insert(text(&output.stdout).trim().to_owned());
        let ask = ["run", "-q", "--", "sh", "-c", "echo $PPID; ls; echo ${SECRET-none}; cat"];
        let output = gpuvine(alpha, &ask, b"end").await;
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let (keeper, rest) = said.split_once('\n').unwrap();
        assert_eq!(rest, "none\nend");
        keepers.insert(keeper.to_owned());
    }
    assert!(keepers.len() < 10, "{keepers:?}");
    // One that is killed while it waits is missed by nobody.
    for keeper in belonging(&alpha.dir.join("tasks")) {
        if keepers.contains(&keeper.to_string()) {
            let keeper = rustix::process::Pid::from_raw(keeper.try_into().unwrap()).unwrap();
            rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
        }
    }
    assert_eq!(code(&gpuvine(alpha, &["run", "-q", "--", "true"], b"").await), 0);
    mesh.stop().await.unwrap();
}

/// Where a process is.
fn place(pid: u32) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

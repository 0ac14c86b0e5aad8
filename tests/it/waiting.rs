//! Jobs that wait, and jobs that are ended.

use std::process::Stdio;

use testnet::live::task::Counter;

use crate::support::{code, gpuvine, mesh, text};

/// When no GPU fits now, requests wait in order, `jobs` says why, and a freed GPU goes to the
/// first.
#[tokio::test]
async fn requests_wait_in_order_and_say_why() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G"), ("beta", "none")]).await;
    let (alpha, beta) = (&mesh.nodes[0], &mesh.nodes[1]);
    let counter = Counter::start(alpha, None).await.unwrap();
    let submit = |name: &str| {
        let arguments = [
            "run",
            "-q",
            "--name",
            name,
            "--",
            "sh",
            "-c",
            "echo $GPUVINE_JOB_NAME >> ../../../../order",
        ];
        beta.gpuvine(&arguments).stdin(Stdio::null()).spawn().unwrap()
    };
    let mut waiting = Vec::new();
    for (place, name) in ["first", "second", "third"].into_iter().enumerate() {
        waiting.push(submit(name));
        beta.until("it waits, and says behind how many", |view| {
            let job = view.jobs.iter().find(|job| job.name == name)?;
            let reason = job.reason.as_deref()?;
            let expected = match place {
                0 => "0 of 1 matching GPU free".to_owned(),
                1 => "0 of 1 matching GPU free, 1 request before this one".to_owned(),
                _ => "0 of 1 matching GPU free, 2 requests before this one".to_owned(),
            };
            (job.state == "waiting" && reason == expected).then_some(())
        })
        .await
        .unwrap();
    }
    counter.stop().await.unwrap();
    for mut run in waiting {
        assert!(run.wait().await.unwrap().success());
    }
    let order = std::fs::read_to_string(mesh.root().join("order")).unwrap();
    assert_eq!(order, "first\nsecond\nthird\n");
    mesh.stop().await.unwrap();
}

/// A job that is cancelled while it waits never runs; one that runs is ended with all of its
/// processes, also those that fled from its process group and ignore SIGTERM.
#[tokio::test]
async fn cancelling_ends_what_waits_and_everything_that_runs() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let script =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait";
    let mut runs = alpha
        .gpuvine(&["run", "-q", "--name", "stubborn", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = {
        use tokio::io::AsyncBufReadExt as _;
        tokio::io::BufReader::new(runs.stdout.take().unwrap()).lines()
    };
    let fled: u32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
    let mut waits = alpha
        .gpuvine(&["run", "-q", "--name", "patient", "--", "true"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let id = async |name: &'static str, state: &'static str| {
        alpha
            .until("the job is there", |view| {
                let job = view.jobs.iter().find(|job| job.name == name && job.state == state)?;
                Some(job.id.clone())
            })
            .await
            .unwrap()
    };
    let patient = id("patient", "waiting").await;
    assert_eq!(code(&gpuvine(alpha, &["cancel", &patient], b"").await), 0);
    assert_eq!(waits.wait().await.unwrap().code(), Some(130));
    let stubborn = id("stubborn", "running").await;
    let output = gpuvine(alpha, &["cancel", "--now", &stubborn], b"").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(runs.wait().await.unwrap().code(), Some(137));
    assert!(!std::path::Path::new(&format!("/proc/{fled}")).exists());
    alpha
        .until("the GPU is free", |view| (view.gpus[0].state == "free").then_some(()))
        .await
        .unwrap();
    mesh.stop().await.unwrap();
}

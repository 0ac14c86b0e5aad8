//! `gpuvine logs`, and output that somebody does not read or nobody can give.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{Fifo, code, gpuvine, mesh, text};
use rustix::process::{Pid, Signal, kill_process};

/// A user whose pager stands still can leave with Ctrl-C, and the job ends.
#[tokio::test]
async fn ctrl_c_works_when_nobody_reads_the_output() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let said = Fifo::new(mesh.root().join("said"));
    // More than all the buffers on the way, so that the end of it is never printed.
    let script = format!("head -c 16M /dev/zero; echo > {}; exec sleep 600", said.path.display());
    let mut run = alpha
        .gpuvine(&["run", "-q", "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    said.written().await;
    let pid = Pid::from_raw(i32::try_from(run.id().unwrap()).unwrap()).unwrap();
    let status = tokio::time::timeout(Duration::from_secs(30), async {
        // The first asks, the second demands, the third does not wait. Signals that come too fast
        // after another are one.
        loop {
            let _ = kill_process(pid, Signal::INT);
            if let Ok(status) = tokio::time::timeout(Duration::from_millis(200), run.wait()).await {
                return status.unwrap();
            }
        }
    });
    assert_eq!(status.await.expect("it ends").code(), Some(130));
    alpha
        .until("the job is cancelled and its GPU free", |view| {
            let ended = view.jobs.iter().all(|job| job.state == "cancelled");
            (ended && view.gpus.iter().all(|gpu| gpu.state == "free")).then_some(())
        })
        .await
        .unwrap();
    mesh.stop().await.unwrap();
}

/// Output that cannot be read now is an error that says so, never an empty answer.
#[tokio::test]
async fn output_of_a_node_that_is_away_is_an_error() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "sim:1xA100-80G")]).await;
    let alpha = mesh.node("alpha").unwrap();
    let output = gpuvine(alpha, &["run", "-q", "--name", "said", "--", "echo", "hi"], b"").await;
    assert_eq!(code(&output), 0);
    let job = alpha.output(&["jobs", "--json"]).await.unwrap();
    let jobs: serde_json::Value = serde_json::from_str(&job).unwrap();
    let id = jobs[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(text(&gpuvine(alpha, &["logs", &id], b"").await.stdout), "hi\n");
    mesh.node("beta").unwrap().kill().await.unwrap();
    let output = gpuvine(mesh.node("alpha").unwrap(), &["logs", &id], b"").await;
    assert_eq!(code(&output), 1);
    let told = text(&output.stderr);
    assert!(told.contains("not all the output") && told.contains("beta cannot be asked"), "{told}");
    mesh.stop().await.unwrap();
}

//! Any daemon may be killed and started again: its tasks do not notice, its users nearly not.

use testnet::live::task::Counter;

use crate::support::mesh;

/// kill -9 of the daemon under a running task: after a restart it has the same id, the task is
/// found again under its lease, and the output goes on where it stopped.
#[tokio::test]
async fn the_daemon_under_a_task_is_killed_and_finds_it_again() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "sim:1xA100-80G")]).await;
    let before = mesh.node("beta").unwrap().client().status().await.unwrap();
    let mut counter = Counter::start(mesh.node("alpha").unwrap(), None).await.unwrap();
    let beta = mesh.node("beta").unwrap();
    beta.kill().await.unwrap();
    assert!(counter.runs_on().await.unwrap());
    beta.start(None).await.unwrap();
    let after = beta.client().status().await.unwrap();
    assert_eq!(after.node, before.node);
    assert!(after.incarnation > before.incarnation);
    beta.until("its GPU is leased again", |view| {
        view.gpus.iter().any(|gpu| gpu.state == "leased").then_some(())
    })
    .await
    .unwrap();
    counter.goes_on().await.unwrap();
    counter.stop().await.unwrap();
    beta.until("its GPU is free", |view| {
        view.gpus.iter().all(|gpu| gpu.state == "free").then_some(())
    })
    .await
    .unwrap();
    mesh.stop().await.unwrap();
}

/// kill -9 of the user's own daemon: `gpuvine run` waits for it and goes on, without losing or
/// repeating a byte.
#[tokio::test]
async fn the_users_own_daemon_is_killed_and_the_output_goes_on() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "sim:1xA100-80G")]).await;
    let mut counter = Counter::start(mesh.node("alpha").unwrap(), None).await.unwrap();
    // What a user's own daemon had no time to write down is not found again.
    for _ in 0..5 {
        counter.goes_on().await.unwrap();
    }
    let alpha = mesh.node("alpha").unwrap();
    alpha.kill().await.unwrap();
    alpha.start(None).await.unwrap();
    counter.goes_on().await.unwrap();
    assert!(counter.runs_on().await.unwrap());
    counter.stop().await.unwrap();
    mesh.stop().await.unwrap();
}

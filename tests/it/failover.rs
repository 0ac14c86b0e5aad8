//! The controller is lost, again and again.

use testnet::live::task::Counter;
use testnet::stopwatch::Stopwatch;

use crate::support::mesh;

/// kill -9 of the controller, ten times in a row: running tasks run on untouched, and a new
/// submission from another peer is placed, in most rounds within the three seconds that are
/// promised (a machine that is busy with other tests may miss it once).
#[tokio::test(flavor = "multi_thread")]
async fn ten_controllers_in_a_row_are_killed_and_work_goes_on() {
    let mut mesh = mesh(&[
        ("alpha", "sim:4xA100-80G"),
        ("beta", "sim:4xA100-80G"),
        ("gamma", "sim:4xA100-80G"),
        ("delta", "none"),
        ("epsilon", "none"),
    ])
    .await;
    let mut controller = mesh.settle().await.unwrap();
    let mut placed = Vec::new();
    for round in 0..10 {
        let others: Vec<String> = mesh
            .nodes
            .iter()
            .map(|node| node.name.clone())
            .filter(|name| *name != controller)
            .collect();
        let mut counter = Counter::start(mesh.node(&others[0]).unwrap(), None).await.unwrap();
        let watch = Stopwatch::start();
        mesh.node(&controller).unwrap().kill().await.unwrap();
        let quick = mesh.node(&others[3]).unwrap();
        quick.output(&["run", "-q", "--", "true"]).await.unwrap();
        placed.push(watch.ms());
        assert!(counter.runs_on().await.unwrap(), "round {round}");
        let killed = std::mem::take(&mut controller);
        mesh.node(&killed).unwrap().start(None).await.unwrap();
        controller = mesh.settle().await.unwrap();
        counter.goes_on().await.unwrap();
        counter.stop().await.unwrap();
    }
    let in_time = placed.iter().filter(|took| **took < 3_000.0).count();
    assert!(in_time > 5, "placed after these milliseconds: {placed:?}");
    mesh.stop().await.unwrap();
}

/// A controller that says goodbye is replaced as well, and says nothing more.
#[tokio::test]
async fn a_controller_that_leaves_is_replaced_and_known_to_be_gone() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "none"), ("gamma", "none")]).await;
    assert_eq!(mesh.settle().await.unwrap(), "alpha");
    mesh.node("alpha").unwrap().leave().await.unwrap();
    assert_ne!(mesh.settle().await.unwrap(), "alpha");
    let status = mesh.node("gamma").unwrap().output(&["status"]).await.unwrap();
    assert!(status.contains("alpha left") || status.contains("could not be reached"), "{status}");
    mesh.stop().await.unwrap();
}

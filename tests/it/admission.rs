//! Who may be a member, and who may not.

use testnet::live::mesh::{Mesh, Node};

use crate::support::{code, gpuvine, mesh, program, text};

/// Waits until a node's notes name the reason for a refusal, or whatever else.
async fn refused(node: &Node, reason: &str) {
    node.until(&format!("it is noted: {reason}"), |view| {
        view.status.notes.iter().any(|note| note.contains(reason)).then_some(())
    })
    .await
    .unwrap();
}

/// A node in the mesh's folder that has not been started.
fn newcomer(mesh: &Mesh, name: &str, arguments: &[&str]) -> Node {
    Node::new(&program(), mesh.root(), name, arguments)
}

/// A stranger with a mesh of its own, an expired ticket, and a membership copied to another
/// machine: each is refused with the reason on both sides, and sees nothing of the mesh.
#[tokio::test]
async fn strangers_late_comers_and_copies_are_refused_on_both_sides() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "sim:1xA100-80G")]).await;
    // As it would be read from a backup.
    let beta = mesh.node("beta").unwrap();
    beta.leave().await.unwrap();
    let copied = mesh.root().join("copy");
    std::fs::create_dir(&copied).unwrap();
    for file in ["gpuvine.redb", "mesh"] {
        std::fs::copy(mesh.root().join("beta").join(file), copied.join(file)).unwrap();
    }
    mesh.node("beta").unwrap().start(None).await.unwrap();
    mesh.settle().await.unwrap();
    let alpha = &mesh.nodes[0];
    let address = alpha.client().addresses().await.unwrap().addresses.remove(0);

    let mut stranger = newcomer(&mesh, "stranger", &["--peer", &address]);
    stranger.output(&["init"]).await.unwrap();
    stranger.start(None).await.unwrap();
    refused(&stranger, "it belongs to mesh").await;
    refused(alpha, "it belongs to mesh").await;

    let late = alpha.output(&["invite", "--expires", "0s"]).await.unwrap();
    let late_comer = newcomer(&mesh, "late", &[]);
    let output = gpuvine(&late_comer, &["up", "--join", late.trim()], b"").await;
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("its ticket expired at"), "{}", text(&output.stderr));

    let mut copy = newcomer(&mesh, "copy", &["--peer", &address]);
    copy.start(None).await.unwrap();
    refused(&copy, "each node needs a ticket of its own").await;
    refused(alpha, "each node needs a ticket of its own").await;

    for outsider in [&stranger, &copy] {
        let status = outsider.client().status().await.unwrap();
        assert_eq!((status.members_alive, status.links), (1, 0), "{}", outsider.name);
        assert!(outsider.client().gpus().await.unwrap().is_empty(), "{}", outsider.name);
        let output = gpuvine(outsider, &["run", "-q", "--", "true"], b"").await;
        assert_eq!(code(&output), 1, "{}: {}", outsider.name, text(&output.stderr));
    }
    let alive = alpha.client().status().await.unwrap().members_alive;
    assert_eq!(alive, 2);
    for mut outsider in [stranger, copy] {
        outsider.kill().await.unwrap();
    }
    mesh.stop().await.unwrap();
}

/// It looked like success, and the newcomer was a mesh of its own that placed jobs.
#[tokio::test]
async fn a_newcomer_that_reaches_nobody_says_so_and_reigns_over_nothing() {
    let mut mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let ticket = mesh.nodes[0].output(&["invite"]).await.unwrap();
    mesh.node("alpha").unwrap().kill().await.unwrap();
    let mut beta = newcomer(&mesh, "beta", &["--gpus", "sim:1xA100-80G"]);
    beta.start(Some(ticket.trim())).await.unwrap();
    refused(&beta, "Connection refused").await;
    let status = beta.client().status().await.unwrap();
    assert_eq!((status.state.as_str(), status.controller), ("joining", None));
    assert!(status.notes[0].starts_with("not yet admitted to mesh"), "{:?}", status.notes);
    let output = gpuvine(&beta, &["run", "-q", "--", "true"], b"").await;
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("not yet admitted"), "{}", text(&output.stderr));
    let gpus = beta.client().gpus().await.unwrap();
    assert_eq!(gpus[0].state, "closed");
    // It tries on.
    mesh.node("alpha").unwrap().start(None).await.unwrap();
    mesh.nodes.push(beta);
    mesh.settle().await.unwrap();
    let beta = &mesh.nodes[1];
    assert_eq!(beta.client().status().await.unwrap().state, "serving");
    // Admitted once it goes on alone.
    mesh.node("alpha").unwrap().kill().await.unwrap();
    mesh.node("beta").unwrap().leave().await.unwrap();
    mesh.node("beta").unwrap().start(None).await.unwrap();
    mesh.settle().await.unwrap();
    let output = gpuvine(&mesh.nodes[1], &["run", "-q", "--", "true"], b"").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

/// Refused by the member that its ticket names, a newcomer ends with the reason.
#[tokio::test]
async fn a_newcomer_that_is_refused_for_good_ends_with_one_line() {
    let mut mesh = mesh(&[("alpha", "none")]).await;
    let alpha = mesh.node("alpha").unwrap();
    let ticket = alpha.output(&["invite"]).await.unwrap();
    let address = alpha.client().addresses().await.unwrap().addresses.remove(0);
    let port = address.split("/p2p/").next().unwrap().to_owned();
    // The founder's machine was made anew: the same key, another mesh.
    alpha.kill().await.unwrap();
    let again = newcomer(&mesh, "again", &["--listen", &port]);
    std::fs::create_dir(&again.dir).unwrap();
    let key = mesh.root().join("alpha/identity.key");
    std::fs::copy(key, again.dir.join("identity.key")).unwrap();
    again.output(&["init"]).await.unwrap();
    let mut again = again;
    again.start(None).await.unwrap();
    let beta = newcomer(&mesh, "beta", &[]);
    let up = ["up", "--no-mdns", "--listen", "/ip4/127.0.0.1/tcp/0", "--join", ticket.trim()];
    let output = gpuvine(&beta, &up, b"").await;
    assert_eq!(code(&output), 1);
    let told = text(&output.stderr);
    let last = told.lines().last().unwrap();
    assert!(last.starts_with("gpuvine: not admitted to mesh"), "{told}");
    assert!(last.contains("it belongs to mesh"), "{told}");
    again.kill().await.unwrap();
    mesh.stop().await.unwrap();
}

/// Who has left is no part of the mesh any more, and is not missed.
#[tokio::test]
async fn a_node_that_has_left_is_not_listed_unless_asked_for() {
    let mut mesh = mesh(&[("alpha", "none"), ("beta", "sim:1xA100-80G")]).await;
    mesh.node("beta").unwrap().leave().await.unwrap();
    let alpha = &mesh.nodes[0];
    alpha
        .until("beta has left", |view| {
            view.nodes.iter().any(|node| node.state == "left").then_some(())
        })
        .await
        .unwrap();
    let status = alpha.client().status().await.unwrap();
    assert_eq!((status.members_known, status.notes), (1, Vec::new()));
    let nodes = alpha.output(&["nodes"]).await.unwrap();
    assert!(!nodes.contains("beta"), "{nodes}");
    assert!(alpha.output(&["nodes", "--all"]).await.unwrap().contains("left"));
    assert!(!alpha.output(&["gpus"]).await.unwrap().contains("beta"));
    // One that comes back and is gone without a word is missed.
    mesh.node("beta").unwrap().start(None).await.unwrap();
    mesh.settle().await.unwrap();
    mesh.node("beta").unwrap().kill().await.unwrap();
    let missed = "not reachable: beta";
    refused(&mesh.nodes[0], missed).await;
    let status = mesh.nodes[0].output(&["status"]).await.unwrap();
    assert!(status.contains(&format!("note        {missed}")), "{status}");
    mesh.stop().await.unwrap();
}

/// A ticket for one mesh does not admit to another, and a node belongs to one mesh only.
#[tokio::test]
async fn a_node_belongs_to_one_mesh() {
    let (one, other) = (mesh(&[("alpha", "none")]).await, mesh(&[("omega", "none")]).await);
    let ticket = other.nodes[0].output(&["invite"]).await.unwrap();
    let mut one_of_both = one;
    let alpha = one_of_both.node("alpha").unwrap();
    alpha.kill().await.unwrap();
    let output = gpuvine(alpha, &["up", "--join", ticket.trim()], b"").await;
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("use another folder"), "{}", text(&output.stderr));
    let output = gpuvine(alpha, &["up", "--join", &ticket.trim()[..60]], b"").await;
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("cut off"), "{}", text(&output.stderr));
    let output = gpuvine(alpha, &["init"], b"").await;
    assert_eq!(code(&output), 1);
    other.stop().await.unwrap();
    one_of_both.stop().await.unwrap();
}

/// A member without the right to submit is told so by the node, whatever the controller granted.
#[tokio::test]
async fn a_member_that_may_not_submit_is_refused_by_the_node() {
    let mut mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let ticket = mesh.nodes[0].output(&["invite", "--role", "node"]).await.unwrap();
    let mut guest = newcomer(&mesh, "guest", &["--gpus", "none"]);
    guest.start(Some(ticket.trim())).await.unwrap();
    mesh.nodes.push(guest);
    mesh.settle().await.unwrap();
    let output = gpuvine(&mesh.nodes[1], &["run", "-q", "--", "true"], b"").await;
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("may not submit"), "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

/// A key that others can read stops the daemon before it does anything.
#[tokio::test]
async fn a_key_that_others_can_read_is_refused_with_the_command_to_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut mesh = mesh(&[("alpha", "none")]).await;
    let alpha = mesh.node("alpha").unwrap();
    alpha.kill().await.unwrap();
    let key = alpha.dir.join("identity.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = gpuvine(alpha, &["up"], b"").await;
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("chmod 600"), "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

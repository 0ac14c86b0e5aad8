//! Who may be a member, and who may not.

use testnet::live::mesh::{Mesh, Node};

use crate::support::{code, gpuvine, mesh, program, text};

/// Waits until a node's notes name the reason for a refusal.
async fn refused(node: &Node, reason: &str) {
    node.until(&format!("a refusal is noted: {reason}"), |view| {
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
    beta.kill().await.unwrap();
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
    let mut late_comer = newcomer(&mesh, "late", &[]);
    late_comer.start(Some(late.trim())).await.unwrap();
    refused(&late_comer, "its ticket expired at").await;
    refused(alpha, "its ticket expired at").await;

    let mut copy = newcomer(&mesh, "copy", &["--peer", &address]);
    copy.start(None).await.unwrap();
    refused(&copy, "each node needs a ticket of its own").await;
    refused(alpha, "each node needs a ticket of its own").await;

    for outsider in [&stranger, &late_comer, &copy] {
        let status = outsider.client().status().await.unwrap();
        assert_eq!((status.members_alive, status.links), (1, 0), "{}", outsider.name);
        assert!(outsider.client().gpus().await.unwrap().is_empty(), "{}", outsider.name);
        let output = gpuvine(outsider, &["run", "-q", "--", "true"], b"").await;
        assert_eq!(code(&output), 1, "{}: {}", outsider.name, text(&output.stderr));
    }
    let alive = alpha.client().status().await.unwrap().members_alive;
    assert_eq!(alive, 2);
    for mut outsider in [stranger, late_comer, copy] {
        outsider.kill().await.unwrap();
    }
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

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

/// Starts the daemon of a newcomer, which is refused for good, and ends with the reason.
async fn ends(node: &Node, arguments: &[&str], reason: &str) {
    let up = ["up", "--no-mdns", "--listen", "/ip4/127.0.0.1/tcp/0"];
    let output = gpuvine(node, &[&up, arguments].concat(), b"").await;
    let told = text(&output.stderr);
    assert_eq!(code(&output), 1, "{told}");
    let last = told.lines().last().unwrap_or_default();
    assert!(last.starts_with("gpuvine: not admitted to mesh") && last.contains(reason), "{told}");
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
    ends(&beta, &["--join", ticket.trim()], "it belongs to mesh").await;
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

/// A ticket is for one machine: another that comes with a copy of it is refused, on both sides, by
/// a member that was restarted since as well. A ticket for two is for two.
#[tokio::test]
async fn a_ticket_is_used_up() {
    let mut mesh = mesh(&[("alpha", "none")]).await;
    let ticket = mesh.nodes[0].output(&["invite"]).await.unwrap();
    let mut first = newcomer(&mesh, "first", &[]);
    first.start(Some(ticket.trim())).await.unwrap();
    mesh.nodes.push(first);
    mesh.settle().await.unwrap();
    let mut second = newcomer(&mesh, "second", &[]);
    ends(&second, &["--join", ticket.trim()], "each machine needs a ticket of its own").await;
    refused(&mesh.nodes[0], "each machine needs a ticket of its own").await;

    mesh.nodes[0].leave().await.unwrap();
    mesh.nodes[0].start(None).await.unwrap();
    ends(&second, &[], "each machine needs a ticket of its own").await;
    refused(&mesh.nodes[0], "each machine needs a ticket of its own").await;
    // A ticket of its own makes it a member after all.
    let two = mesh.nodes[0].output(&["invite", "--uses", "2"]).await.unwrap();
    second.start(Some(two.trim())).await.unwrap();
    mesh.nodes.push(second);
    let mut third = newcomer(&mesh, "third", &[]);
    third.start(Some(two.trim())).await.unwrap();
    mesh.nodes.push(third);
    mesh.settle().await.unwrap();
    let fourth = newcomer(&mesh, "fourth", &[]);
    ends(&fourth, &["--join", two.trim()], "used by the 2 machines").await;
    mesh.stop().await.unwrap();
}

/// A ticket may come from a file that only its owner can read, or by standard input: then it is in
/// no list of processes.
#[tokio::test]
async fn a_ticket_comes_from_a_file_or_by_standard_input() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut mesh = mesh(&[("alpha", "none")]).await;
    let ticket = mesh.nodes[0].output(&["invite"]).await.unwrap();
    let file = mesh.root().join("ticket");
    std::fs::write(&file, &ticket).unwrap();
    let at = format!("@{}", file.display());
    let mut beta = newcomer(&mesh, "beta", &[]);
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o644);
    let output = gpuvine(&beta, &["up", "--join", &at], b"").await;
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("chmod 600"), "{}", text(&output.stderr));
    let output = gpuvine(&beta, &["up", "--join", "-"], b"gpuvine1abc\n").await;
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("standard input: the ticket"), "{output:?}");
    mode(0o600);
    beta.start(Some(&at)).await.unwrap();
    mesh.nodes.push(beta);
    mesh.settle().await.unwrap();
    mesh.stop().await.unwrap();
}

/// A member without the right to submit is told so at once, by its own daemon, and what to do.
#[tokio::test]
async fn a_member_that_may_not_submit_is_told_so_at_once() {
    let mut mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let ticket = mesh.nodes[0].output(&["invite", "--role", "node"]).await.unwrap();
    let mut guest = newcomer(&mesh, "guest", &["--gpus", "sim:1xH100-80G"]);
    guest.start(Some(ticket.trim())).await.unwrap();
    mesh.nodes.push(guest);
    mesh.settle().await.unwrap();
    let output = gpuvine(&mesh.nodes[1], &["run", "-q", "--", "true"], b"").await;
    assert_eq!(code(&output), 1);
    let said = text(&output.stderr);
    assert!(said.contains("may not submit") && said.contains("invite --role"), "{said}");
    // What it may do it does: it offers its GPU.
    let run = ["run", "-q", "--gpu-model", "h100", "--", "true"];
    let output = gpuvine(&mesh.nodes[0], &run, b"").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

/// A member without the role `node` offers no GPUs, is given no task, and submits as others do; if
/// its membership names a user its jobs are that user's.
#[tokio::test]
async fn a_guest_submits_as_the_user_of_its_ticket_and_is_given_no_task() {
    let mut mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let invite = ["invite", "--role", "submit", "--user", "ada"];
    let ticket = mesh.nodes[0].output(&invite).await.unwrap();
    let mut guest = newcomer(&mesh, "guest", &["--gpus", "sim:2xH100-80G"]);
    guest.start(Some(ticket.trim())).await.unwrap();
    mesh.nodes.push(guest);
    mesh.settle().await.unwrap();
    let (alpha, guest) = (&mesh.nodes[0], &mesh.nodes[1]);
    alpha
        .until("the guest is one, and says why it has no GPUs", |view| {
            let node = view.nodes.iter().find(|node| node.name == "guest")?;
            let why = node.gpus_note.as_deref()?;
            (node.state == "guest" && why.contains("not `node`")).then_some(())
        })
        .await
        .unwrap();
    assert_eq!(alpha.client().gpus().await.unwrap().len(), 1);
    let script = "echo $GPUVINE_NODE $GPUVINE_OWNER";
    for node in [alpha, guest] {
        let h100 = gpuvine(node, &["run", "-q", "--gpu-model", "h100", "--", "true"], b"").await;
        assert_eq!(code(&h100), 1, "{}", text(&h100.stderr));
        for gpus in ["0", "1"] {
            let run = ["run", "-q", "--gpus", gpus, "--", "sh", "-c", script];
            let output = gpuvine(node, &run, b"").await;
            assert_eq!(code(&output), 0, "{}", text(&output.stderr));
            let said = text(&output.stdout);
            let is_adas = said == "alpha ada\n";
            assert!(said.starts_with("alpha ") && is_adas == (node.name == "guest"), "{said}");
        }
    }
    let jobs = guest.client().jobs(false).await.unwrap();
    assert_eq!(jobs.len(), 3);
    assert!(jobs.iter().all(|job| job.owner == "ada"), "{jobs:?}");
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

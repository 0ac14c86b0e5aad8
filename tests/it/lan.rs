//! Daemons on hosts of their own: what loopback does not show. In network namespaces, as root; said
//! loudly where that cannot be.

use testnet::live::lan::{Lan, PORT};
use testnet::live::mesh::{Mesh, Node};

use crate::support::{code, gpuvine, program, text};

/// A network of this many hosts, unless there can be none here.
pub(crate) fn lan(hosts: u8) -> Option<Lan> {
    if let Some(missing) = Lan::missing() {
        // Past the test runner's capture: a test that was not run must not look like one that was.
        let mut terminal = std::fs::File::options().append(true).open("/dev/stderr").ok()?;
        let _ = std::io::Write::write_all(
            &mut terminal,
            format!("\n*** SKIPPED, tests of real networks: {missing}\n").as_bytes(),
        );
        return None;
    }
    Some(Lan::new(hosts).expect("a network can be made"))
}

/// Founds a mesh with a node on every host: `listen` with `N` for the host's number.
pub(crate) async fn mesh(lan: &Lan, listen: &str, arguments: &[&str], gpus: &[&str]) -> Mesh {
    let mut mesh = Mesh::empty().unwrap();
    for (index, gpus) in (0..).zip(gpus) {
        let listen = listen.replace('N', &(index + 1).to_string());
        let fixed = ["--listen", &listen, "--gpus", gpus];
        let program = lan.on(index, &program());
        let name = format!("host{}", index + 1);
        let arguments = [&fixed, arguments].concat();
        mesh.join(Node::anywhere(&program, mesh.root(), &name, &arguments)).await.unwrap();
    }
    mesh.settle().await.unwrap();
    mesh
}

/// What the hosts of a small network have.
const GPUS: [&str; 2] = ["none", "sim:1xA100-80G"];

async fn runs(mesh: &Mesh) {
    let output = gpuvine(&mesh.nodes[0], &["run", "-q", "--", "echo", "hi"], b"").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "hi\n");
}

/// The whole path over QUIC alone, and over IPv6 alone.
#[tokio::test]
async fn quic_alone_and_ipv6_alone_are_enough() {
    let Some(lan) = lan(2) else { return };
    for listen in [
        format!("/ip4/10.77.0.N/udp/{PORT}/quic-v1"),
        format!("/ip6/fd77::N/tcp/{PORT}"),
        format!("/ip6/fd77::N/udp/{PORT}/quic-v1"),
    ] {
        let mesh = mesh(&lan, &listen, &["--no-mdns"], &GPUS).await;
        runs(&mesh).await;
        mesh.stop().await.unwrap();
    }
}

/// Machines that got other addresses over night find each other again by mDNS, and do not mix with
/// another mesh on the same network.
#[tokio::test]
async fn members_with_new_addresses_find_each_other_by_mdns() {
    let Some(lan) = lan(3) else { return };
    let any = format!("/ip4/0.0.0.0/tcp/{PORT}");
    let mut ours = mesh(&lan, &any, &[], &GPUS).await;
    let mut theirs = Mesh::empty().unwrap();
    let other = Node::anywhere(&lan.on(2, &program()), theirs.root(), "other", &["--listen", &any]);
    theirs.join(other).await.unwrap();
    for index in 0..2 {
        ours.nodes[usize::from(index)].kill().await.unwrap();
        lan.give_address(index, 100 + index).unwrap();
    }
    for node in &mut ours.nodes {
        node.start(None).await.unwrap();
    }
    ours.settle().await.unwrap();
    runs(&ours).await;
    let others = theirs.nodes[0].output(&["nodes", "--json"]).await.unwrap();
    let others: Vec<serde_json::Value> = serde_json::from_str(&others).unwrap();
    assert_eq!(others.len(), 1, "{others:?}");
    theirs.stop().await.unwrap();
    ours.stop().await.unwrap();
}

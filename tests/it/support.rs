//! What the whole-program tests share.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::Result;
use testnet::live::mesh::{Mesh, Node, Program};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::{OpenOptions, Receiver};

/// The program under test.
pub(crate) fn program() -> Program {
    Program { path: env!("CARGO_BIN_EXE_gpuvine").into(), prefix: Vec::new() }
}

/// A mesh of these nodes: name and GPUs.
pub(crate) async fn mesh(nodes: &[(&str, &str)]) -> Mesh {
    Mesh::start(&program(), nodes).await.expect("the mesh comes up")
}

/// Runs `gpuvine` on a node, with this standard input.
pub(crate) async fn gpuvine(node: &Node, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = node.gpuvine(arguments);
    call(&mut command, input).await.expect("gpuvine runs")
}

/// Runs a command with this standard input, and collects what it says.
pub(crate) async fn call(command: &mut tokio::process::Command, input: &[u8]) -> Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().expect("it has a standard input");
    let input = input.to_vec();
    let feed = tokio::spawn(async move {
        // A command that does not read its input may be gone already.
        let _ = stdin.write_all(&input).await;
    });
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output());
    let output = output.await??;
    feed.abort();
    Ok(output)
}

/// How a task tells the test that it has come so far: `echo > PATH`.
pub(crate) struct Fifo {
    pub(crate) path: PathBuf,
    end: Receiver,
}

impl Fifo {
    pub(crate) fn new(path: PathBuf) -> Self {
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success(), "mkfifo {}", path.display());
        let end = OpenOptions::new().open_receiver(&path).expect("it can be read");
        Self { path, end }
    }

    /// Waits until something has been written.
    pub(crate) async fn written(&self) {
        let written = tokio::time::timeout(Duration::from_secs(60), self.end.readable());
        written.await.expect("the task comes so far").expect("it can be read");
    }
}

/// The exit code.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("it was killed: {}", text(&output.stderr)))
}

/// Bytes as text, for messages.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that compress badly and are the same each time.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

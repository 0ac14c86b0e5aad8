//! `gpuvine run`: what goes in arrives, what comes out comes back, and the exit code is the
//! command's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Stdio;
use std::time::Duration;

use testnet::live::mesh::{PATIENCE, View};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::support::{Fifo, call, code, gpuvine, mesh, noise, text};

/// A node without GPUs submits: the place is told, and every ending is passed through.
#[tokio::test]
async fn a_node_without_gpus_runs_on_anothers_and_every_exit_code_comes_back() {
    let mesh = mesh(&[("alpha", "sim:2xA100-80G"), ("beta", "none")]).await;
    let beta = &mesh.nodes[1];
    let script = "echo \"$GPUVINE_NODE $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE\"; exit 7";
    let output = gpuvine(beta, &["run", "--gpus", "2", "--", "sh", "-c", script], b"").await;
    assert_eq!(code(&output), 7);
    assert_eq!(text(&output.stdout), "alpha 0,1 2\n");
    let told = text(&output.stderr);
    assert!(told.contains("alpha, GPUs 0 (A100), 1 (A100)"), "{told}");

    let run = async |command: &[&str]| {
        gpuvine(beta, &[&["run", "-q", "--"], command].concat(), b"").await
    };
    assert_eq!(code(&run(&["true"]).await), 0);
    assert_eq!(code(&run(&["sh", "-c", "kill -9 $$"]).await), 137);
    let missing = run(&["no-such-command"]).await;
    assert_eq!(code(&missing), 127);
    assert_eq!(text(&missing.stderr), "gpuvine: no-such-command: command not found\n");
    assert_eq!(code(&run(&["/etc/passwd"]).await), 126);
    let zero = ["run", "-q", "-G", "0", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    assert_eq!(text(&gpuvine(beta, &zero, b"").await.stdout), "-1\n");
    mesh.stop().await.unwrap();
}

/// 64 MiB out, 10,000 lines in and out, and bytes that are no text in arguments, environment and
/// output.
#[tokio::test]
async fn bytes_arrive_as_they_were_sent() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G"), ("beta", "none")]).await;
    let beta = &mesh.nodes[1];
    let bytes = noise(64 << 20);
    let file = mesh.root().join("noise");
    std::fs::write(&file, &bytes).unwrap();
    let path = file.to_str().unwrap();
    let output = gpuvine(beta, &["run", "-q", "--", "cat", path], b"").await;
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(output.stdout == bytes, "{} bytes came", output.stdout.len());

    let lines: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
    let output = gpuvine(beta, &["run", "-q", "--", "cat"], lines.as_bytes()).await;
    assert_eq!(code(&output), 0);
    assert!(output.stdout == lines.as_bytes());

    let raw = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let mut command = beta.gpuvine(&["run", "-q"]);
    command.arg("-e").arg(raw(b"VALUE=\xff\xfe")).args(["--", "sh", "-c"]);
    command.args(["printf '%s|%s|\\200' \"$VALUE\" \"$1\"", "sh"]).arg(raw(b"\xc3\x28 \"'\\"));
    let output = call(&mut command, b"").await.unwrap();
    assert_eq!(output.stdout, b"\xff\xfe|\xc3\x28 \"'\\|\x80", "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

/// Standard error stays standard error, also when standard input is closed at once.
#[tokio::test]
async fn both_outputs_come_back_apart_and_a_private_folder_is_the_place() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let script = "cat; echo out; echo err >&2; pwd; touch left; ls";
    let output = gpuvine(alpha, &["run", "-q", "--", "sh", "-c", script], b"").await;
    assert_eq!(text(&output.stderr), "err\n");
    let out = text(&output.stdout);
    assert!(out.starts_with("out\n") && out.ends_with("/work\nleft\n"), "{out}");

    let chdir = ["run", "-q", "-D", "/usr", "--", "pwd"];
    assert_eq!(text(&gpuvine(alpha, &chdir, b"").await.stdout), "/usr\n");
    let job = alpha.output(&["jobs", "--json"]).await.unwrap();
    let jobs: serde_json::Value = serde_json::from_str(&job).unwrap();
    let id = jobs[0]["id"].as_str().unwrap();
    assert_eq!(alpha.output(&["logs", "--stdout", &id[..6]]).await.unwrap(), out);
    mesh.stop().await.unwrap();
}

/// A directory that is on no node waited for ever, for "no living node has 1 GPU".
#[tokio::test]
async fn a_directory_that_is_on_no_node_ends_the_job_and_is_named_with_the_nodes() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G"), ("beta", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let output = gpuvine(alpha, &["run", "-D", "/typo", "--", "true"], b"").await;
    let told = text(&output.stderr);
    assert_eq!((code(&output), told.lines().count()), (1, 1), "{told}");
    assert!(told.contains("there is no directory /typo on "), "{told}");
    assert!(told.contains("alpha") && told.contains("beta"), "{told}");
    // Where a node has it, the job finds the way.
    let here = mesh.root().join("shared");
    std::fs::create_dir(&here).unwrap();
    let mut command = alpha.gpuvine(&["run", "-q", "-D", "shared", "--", "pwd"]);
    let output = call(command.current_dir(mesh.root()), b"").await.unwrap();
    assert_eq!(text(&output.stdout).trim_end(), here.to_str().unwrap());
    mesh.stop().await.unwrap();
}

/// Programs get one JSON value on standard output, whatever the command prints.
#[tokio::test]
async fn json_is_one_value_also_where_bytes_are_watched() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let script = "echo out; echo err >&2; exit 3";
    let output = gpuvine(alpha, &["--json", "run", "-q", "--", "sh", "-c", script], b"").await;
    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &job["state"], &job["exit_code"]), (3, &"failed".into(), &3.into()));
    let mut lines: Vec<String> = text(&output.stderr).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["err", "out"]);

    let id = job["id"].as_str().unwrap();
    let logs = alpha.output(&["logs", "--json", id]).await.unwrap();
    let pieces: Vec<serde_json::Value> = serde_json::from_str(&logs).unwrap();
    assert_eq!(pieces.last().unwrap()["job"]["id"], id);
    let out = pieces.iter().find(|piece| piece["stream"] == "stdout").unwrap();
    assert_eq!(out["base64"], "b3V0Cg==");

    let output = gpuvine(alpha, &["--json", "run", "--gpus", "9", "--", "true"], b"").await;
    let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &job["state"]), (1, &"rejected".into()));
    mesh.stop().await.unwrap();
}

/// A script that asks for a ticket gets the ticket, once and alone.
#[tokio::test]
async fn an_invitation_is_printed_once() {
    let mesh = mesh(&[("alpha", "none")]).await;
    let output = gpuvine(&mesh.nodes[0], &["invite"], b"").await;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.starts_with("gpuvine1") && out.lines().count() == 1, "{out}");
    assert!(err.lines().count() == 1 && !err.contains(out.trim()), "{err}");
    mesh.stop().await.unwrap();
}

/// A mesh to play with is taken down under a user's command: one line, no kill.
#[tokio::test]
async fn a_run_whose_whole_node_is_gone_ends_with_one_line() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let started = Fifo::new(mesh.root().join("started"));
    let script = format!("echo > {}; sleep 1000", started.path.display());
    let mut command = mesh.nodes[0].gpuvine(&["run", "-q", "--", "sh", "-c", &script]);
    let run = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    started.written().await;
    mesh.stop().await.unwrap();
    let ended = timeout(PATIENCE, run.wait_with_output()).await;
    let output = ended.unwrap().unwrap();
    let told = text(&output.stderr);
    assert_eq!((code(&output), told.lines().count()), (1, 1), "{told}");
    assert!(told.contains("is gone, and with it its node"), "{told}");
}

/// A user's mistakes are told in one line, with the fitting exit code.
#[tokio::test]
async fn mistakes_teach() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let cases: [(&[&str], i32, &str); 10] = [
        (&["run", "--gpu-mem", "40", "--", "true"], 2, "write 40G"),
        (&["run", "-e", "NOT_SET_HERE", "--", "true"], 2, "it is not set here"),
        (&["run", "--node", "gamma", "--", "true"], 1, "there are: alpha"),
        (&["run", "--gpus", "9", "--", "true"], 1, "alpha comes closest with 1"),
        (&["cancel", "zzz"], 1, "there is no job `zzz` here"),
        (&["run"], 2, "COMMAND"),
        (&["up", "--gpus", "sim:4A100"], 2, "--gpus sim:4A100: `4A100` has no `x`"),
        (&["up", "--gpus", "4xA100-80G"], 2, "are written sim:4xA100-80G"),
        (&["up", "--listen", "47600"], 2, "--listen 47600: that is no multiaddress"),
        (&["up", "--peer", "gpu1:47600"], 2, "--peer gpu1:47600: that is no multiaddress"),
    ];
    for (arguments, exit, sentence) in cases {
        let output = gpuvine(alpha, arguments, b"").await;
        let told = text(&output.stderr);
        assert_eq!(code(&output), exit, "{arguments:?}: {told}");
        assert!(told.contains(sentence), "{arguments:?}: {told}");
    }
    let address = alpha.client().addresses().await.unwrap().addresses.remove(0);
    let port = address.split("/p2p/").next().unwrap().to_owned();
    let mut second = crate::support::program().command();
    second.arg("--dir").arg(mesh.root().join("second")).arg("init");
    assert_eq!(code(&call(&mut second, b"").await.unwrap()), 0);
    let mut second = crate::support::program().command();
    second.arg("--dir").arg(mesh.root().join("second"));
    let output = call(second.args(["up", "--no-mdns", "--listen", &port]), b"").await.unwrap();
    assert_eq!(code(&output), 1);
    let told = text(&output.stderr);
    assert!(told.contains(&format!("cannot listen on {port}: another program does")), "{told}");

    let mut away = crate::support::program().command();
    away.arg("--dir").arg(mesh.root().join("nowhere")).arg("status");
    let output = call(&mut away, b"").await.unwrap();
    assert_eq!(code(&output), 3);
    assert!(text(&output.stderr).contains("gpuvine up"), "{}", text(&output.stderr));
    mesh.stop().await.unwrap();
}

/// A user who is killed is missed, also if nobody reads what they sent: the end of their stream
/// lies behind it.
#[tokio::test]
async fn a_killed_user_is_missed_though_their_input_is_unread() {
    let mesh = mesh(&[("alpha", "sim:1xA100-80G")]).await;
    let alpha = &mesh.nodes[0];
    let mut command = alpha.gpuvine(&["run", "-q", "--gpus", "1", "--", "sleep", "600"]);
    let mut user = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = user.stdin.take().unwrap();
    let state = |wanted: &'static str| {
        move |view: &View| view.jobs.iter().any(|job| job.state == wanted).then_some(())
    };
    alpha.until("the job runs", state("running")).await.unwrap();
    // Until all that lies between is full.
    let piece = vec![0; 64 * 1024];
    while let Ok(written) = timeout(Duration::from_secs(1), stdin.write(&piece)).await {
        written.unwrap();
    }
    user.kill().await.unwrap();
    alpha.until("the job is cancelled", state("cancelled")).await.unwrap();
    mesh.stop().await.unwrap();
}

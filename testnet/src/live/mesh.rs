//! A mesh of real daemons: processes in one temporary folder, on loopback, joined by tickets.
//!
//! Everything here waits for events with a deadline and cleans up after itself, also after a
//! failure: what is dropped is killed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use gpuvine::api::client::Client;
use gpuvine::api::{GpuView, JobView, NodeView, Status};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::leftovers::end_leftovers;

/// How the `gpuvine` program is called: a path, and arguments that go before all others.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What precedes every command line.
    pub prefix: Vec<OsString>,
}

impl Program {
    /// A call of the program with nothing inherited but what it needs, killed when dropped.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.prefix).env_clear().kill_on_drop(true);
        for name in ["PATH", "HOME", "TMPDIR", "GPUVINE_LOG", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

/// One daemon.
#[derive(Debug)]
pub struct Node {
    /// Its name in the mesh.
    pub name: String,
    /// Its state folder.
    pub dir: PathBuf,
    program: Program,
    arguments: Vec<OsString>,
    process: Option<Child>,
}

/// How long a daemon may take to say that it is ready, and how long a state may take to come about.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Node {
    /// A node on loopback that has not been started. `arguments` go to every `up`.
    pub fn new(program: &Program, root: &Path, name: &str, arguments: &[&str]) -> Self {
        let fixed = ["--listen", "/ip4/127.0.0.1/tcp/0", "--no-mdns"];
        Self::anywhere(program, root, name, &[&fixed, arguments].concat())
    }

    /// A node that has not been started, and listens where its arguments say.
    pub fn anywhere(program: &Program, root: &Path, name: &str, arguments: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            dir: root.join(name),
            program: program.clone(),
            arguments: ["--name", name].iter().chain(arguments).map(OsString::from).collect(),
            process: None,
        }
    }

    /// A call of `gpuvine` that speaks to this node.
    pub fn gpuvine(&self, arguments: &[&str]) -> Command {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        self.caller()(&arguments)
    }

    /// What makes calls of `gpuvine` that speak to this node, also while it is started again.
    pub fn caller(&self) -> impl Fn(&[String]) -> Command + Send + use<> {
        let (program, dir) = (self.program.clone(), self.dir.clone());
        move |arguments| {
            let mut command = program.command();
            command.arg("--dir").arg(&dir).args(arguments);
            command
        }
    }

    /// Runs `gpuvine` with these arguments and answers its standard output.
    ///
    /// # Errors
    /// If it exits with anything but 0; its standard error is in the message.
    pub async fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self.gpuvine(arguments).stdin(Stdio::null()).output().await?;
        ensure!(
            output.status.success(),
            "`gpuvine {}` on {} ended with {}: {}",
            arguments.join(" "),
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts the daemon and waits until it serves. With a ticket it joins the ticket's mesh.
    ///
    /// # Errors
    /// If it is not ready in time; the end of its log is in the message.
    pub async fn start(&mut self, ticket: Option<&str>) -> Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let log = std::fs::File::options().create(true).append(true).open(self.log())?;
        let mut command = self.gpuvine(&["--json", "up"]);
        command.args(&self.arguments);
        if let Some(ticket) = ticket {
            command.args(["--join", ticket]);
        }
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = process.stdout.take().context("a daemon has a standard output")?;
        self.process = Some(process);
        // The first line says that it is ready; its end, that it is not going to be.
        let mut lines = BufReader::new(stdout).lines();
        match tokio::time::timeout(PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(_ready))) => self.keep_port().await,
            Ok(_) => Err(anyhow!("{} did not start: {}", self.name, self.log_tail())),
            Err(_) => Err(anyhow!("{} was not ready in time: {}", self.name, self.log_tail())),
        }
    }

    /// From now on the node listens where it does now, as nodes with a fixed port do: others find
    /// it again after a restart.
    async fn keep_port(&mut self) -> Result<()> {
        let addresses = self.client().addresses().await?.addresses;
        let address = addresses.first().and_then(|address| address.split("/p2p/").next());
        let any = self.arguments.iter().position(|argument| argument == "/ip4/127.0.0.1/tcp/0");
        if let (Some(address), Some(at)) = (address, any) {
            self.arguments[at] = address.into();
        }
        Ok(())
    }

    /// Kills the daemon as a power cut would: SIGKILL, no goodbye. Its tasks live on.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().with_context(|| format!("{} runs", self.name))?;
        process.kill().await?;
        Ok(())
    }

    /// Asks the daemon to leave, and waits until its process has ended.
    ///
    /// # Errors
    /// If it does not end in time or not well.
    pub async fn leave(&mut self) -> Result<()> {
        self.output(&["leave"]).await?;
        let mut process = self.process.take().with_context(|| format!("{} runs", self.name))?;
        let status = tokio::time::timeout(PATIENCE, process.wait()).await??;
        ensure!(status.success(), "{} ended with {status}: {}", self.name, self.log_tail());
        Ok(())
    }

    /// Sends the daemon a signal, such as SIGSTOP.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(kill_process(pid.with_context(|| format!("{} runs", self.name))?, signal)?)
    }

    /// Whether its daemon was started and not killed.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// The daemon's process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// Where its log is.
    pub fn log(&self) -> PathBuf {
        self.dir.with_extension("log")
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// A client of its local API.
    pub fn client(&self) -> Client {
        Client::new(self.dir.join("gpuvine.sock"))
    }

    /// Waits until `wanted` says that what this node sees is as it should be.
    ///
    /// # Errors
    /// If it does not come about within [`PATIENCE`]; what was seen last is in the message.
    pub async fn until<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut(&View) -> Option<T>,
    ) -> Result<T> {
        let client = self.client();
        let mut last = None;
        let wait = async {
            let mut seen = 0;
            loop {
                let view = View {
                    status: client.status().await?,
                    nodes: client.nodes().await?,
                    gpus: client.gpus().await?,
                    jobs: client.jobs(true).await?,
                };
                if let Some(found) = wanted(&view) {
                    return Ok(found);
                }
                last = Some(view);
                seen = client.changes(seen).await?;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => {
                bail!("{}: it did not come about that {what}; last seen: {last:#?}", self.name)
            }
        }
    }
}

/// What one node sees.
#[derive(Clone, Debug)]
pub struct View {
    /// Itself and its mesh.
    pub status: Status,
    /// The nodes.
    pub nodes: Vec<NodeView>,
    /// The board.
    pub gpus: Vec<GpuView>,
    /// The jobs of the mesh.
    pub jobs: Vec<JobView>,
}

impl View {
    /// The controller's name, if one is known.
    pub fn controller(&self) -> Option<&str> {
        self.status.controller.as_ref().map(|controller| controller.name.as_str())
    }
}

/// Some nodes of one mesh, in one temporary folder.
#[derive(Debug)]
pub struct Mesh {
    /// The nodes; the first is the founder.
    pub nodes: Vec<Node>,
    root: tempfile::TempDir,
}

impl Mesh {
    /// Founds a mesh and joins the other nodes to it by tickets: for each node its name and what
    /// `--gpus` says. Ready when every node sees every other and all follow one controller.
    ///
    /// # Errors
    /// If a daemon does not start or the mesh does not come together in time.
    pub async fn start(program: &Program, nodes: &[(&str, &str)]) -> Result<Self> {
        let mut mesh = Self::empty()?;
        for (name, gpus) in nodes {
            mesh.add(program, name, &["--gpus", gpus]).await?;
        }
        mesh.settle().await?;
        Ok(mesh)
    }

    /// A mesh without nodes.
    ///
    /// # Errors
    /// If there is no place for a temporary folder.
    pub fn empty() -> Result<Self> {
        let root = tempfile::Builder::new().prefix("gpuvine-").tempdir()?;
        Ok(Self { nodes: Vec::new(), root })
    }

    /// The temporary folder that holds it all.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Adds and starts a node: the first founds the mesh, the others join by a ticket of the first.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn add(&mut self, program: &Program, name: &str, arguments: &[&str]) -> Result<()> {
        self.join(Node::new(program, self.root.path(), name, arguments)).await
    }

    /// Starts a node: the first founds the mesh, the others join by a ticket of the first.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn join(&mut self, mut node: Node) -> Result<()> {
        match self.nodes.first() {
            None => {
                node.output(&["init"]).await?;
                node.start(None).await?;
            }
            Some(founder) => {
                let ticket = founder.output(&["invite"]).await?;
                node.start(Some(ticket.trim())).await?;
            }
        }
        self.nodes.push(node);
        Ok(())
    }

    /// Waits until all running nodes see exactly each other as alive and follow one controller.
    ///
    /// # Errors
    /// If that does not come about in time.
    pub async fn settle(&self) -> Result<String> {
        let running: Vec<&Node> = self.nodes.iter().filter(|node| node.runs()).collect();
        let mut controller = None;
        for node in &running {
            let follows = node
                .until("all nodes are alive and have a controller", |view| {
                    let alive = view.nodes.iter().filter(|node| node.is_alive()).count();
                    let name = view.controller()?;
                    let lives = running.iter().any(|node| node.name == name);
                    (alive == running.len() && lives).then(|| name.to_owned())
                })
                .await?;
            controller = Some(follows);
        }
        controller.context("a mesh without nodes has no controller")
    }

    /// The node with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes
            .iter_mut()
            .find(|node| node.name == name)
            .with_context(|| format!("there is no node {name}"))
    }

    /// Ends everything: all jobs, all daemons, and every process that still belongs to a task.
    ///
    /// # Errors
    /// If a process cannot be looked at.
    pub async fn stop(mut self) -> Result<()> {
        for node in self.nodes.iter_mut().filter(|node| node.runs()) {
            // One that does not answer is killed below.
            let _ = node.kill().await;
        }
        end_leftovers(self.root.path());
        Ok(())
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(process) = &mut node.process {
                // Already dead is as good.
                let _ = process.start_kill();
            }
        }
        end_leftovers(self.root.path());
    }
}

impl Mesh {
    /// Seconds of processor time that each daemon has used so far.
    ///
    /// # Errors
    /// If one does not run.
    pub fn cpu_seconds(&self) -> Result<Vec<f64>> {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        self.each_daemon(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let fields = stat.rsplit_once(')').context("a stat line")?.1;
            // utime and stime are fields 14 and 15; the name was the second.
            let used: u64 = fields
                .split_ascii_whitespace()
                .skip(11)
                .take(2)
                .map(str::parse::<u64>)
                .sum::<Result<_, _>>()?;
            Ok(used as f64 / ticks)
        })
    }

    /// Resident memory of each daemon, in MiB.
    ///
    /// # Errors
    /// If one does not run.
    pub fn resident_mib(&self) -> Result<Vec<f64>> {
        self.each_daemon(|pid| {
            let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
            let pages: u64 =
                statm.split_ascii_whitespace().nth(1).context("a statm line")?.parse()?;
            Ok(pages as f64 * rustix::param::page_size() as f64 / 1_048_576.0)
        })
    }

    fn each_daemon(&self, look: impl Fn(u32) -> Result<f64>) -> Result<Vec<f64>> {
        self.nodes
            .iter()
            .map(|node| look(node.pid().with_context(|| format!("{} runs", node.name))?))
            .collect()
    }
}

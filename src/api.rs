//! The local API: its types, shared by the daemon and the command line, and its client.
//!
//! HTTP/1.1 on a Unix socket; JSON; times are UTC in ISO 8601. See `docs/api.md`.

pub mod attach;
#[cfg(feature = "daemon")]
pub mod client;
pub mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /v1/status`: this node and its mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// This node's id.
    pub node: String,
    /// This node's name.
    pub name: String,
    /// The mesh's id.
    pub mesh: String,
    /// Version of the daemon.
    pub version: String,
    /// `serving`, `draining`, `leaving`, or `joining` until a member has admitted it.
    pub state: String,
    /// Number of this start.
    pub incarnation: u64,
    /// Seconds since the daemon was started.
    pub uptime_secs: u64,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Who reigns, as far as this node knows.
    pub controller: Option<ControllerView>,
    /// Members that are alive, this one included.
    pub members_alive: usize,
    /// Members that are known.
    pub members_known: usize,
    /// Open links.
    pub links: usize,
    /// GPUs of living members.
    pub gpus_total: usize,
    /// How many of them are free.
    pub gpus_free: usize,
    /// Jobs of this home that wait.
    pub jobs_waiting: usize,
    /// Jobs of this home that run.
    pub jobs_running: usize,
    /// Requests that wait at this node's desk, if it is the controller.
    pub queue: usize,
    /// What the operator should know.
    pub notes: Vec<String>,
}

/// Who reigns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerView {
    /// The node's id.
    pub id: String,
    /// The node's name.
    pub name: String,
    /// The reign's number.
    pub term: u64,
    /// Why it was chosen, in a sentence.
    pub why: String,
    /// Whether it is this node.
    pub me: bool,
}

/// `GET /v1/nodes`: one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `serving`, `draining`, `joining`, `down`, or `left` if it said goodbye.
    pub state: String,
    /// Whether it is the controller.
    pub controller: bool,
    /// Whether it is this node.
    pub me: bool,
    /// Whether this node has a link with it.
    pub linked: bool,
    /// Its GPUs.
    pub gpus_total: usize,
    /// How many of them are free.
    pub gpus_free: usize,
    /// Why it has none.
    pub gpus_note: Option<String>,
    /// Logical CPUs.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of it that are available.
    pub memory_free_bytes: u64,
    /// Operator's words.
    pub labels: BTreeMap<String, String>,
    /// Version of its daemon.
    pub version: String,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// Its place in the order of arrival, once known.
    pub seniority: Option<u64>,
    /// Operator's wish to see it as controller.
    pub priority: i32,
}

impl NodeView {
    /// Whether it is a living member.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state.as_str(), "down" | "left")
    }
}

/// `GET /v1/gpus`: one GPU of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuView {
    /// Its node's id.
    pub node: String,
    /// Its node's name.
    pub node_name: String,
    /// Its index on the node.
    pub index: u32,
    /// Its driver's name for it.
    pub uuid: String,
    /// Its model.
    pub model: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of it that are free.
    pub memory_free_bytes: u64,
    /// How busy it is, in percent.
    pub utilization: Option<u8>,
    /// `free`, `starting`, `leased`, `draining`, `broken`, `quarantined`, `closed`,
    /// `unreachable`, or `left` with its node.
    pub state: String,
    /// The number of its latest lease, one higher each time: how often it was given to a task.
    #[serde(default)]
    pub lease_seq: u64,
    /// The job that has it.
    pub job: Option<String>,
    /// That job's name.
    pub job_name: Option<String>,
    /// That job's owner.
    pub owner: Option<String>,
    /// Since when.
    pub since: Option<String>,
    /// Why it is not free.
    pub why: Option<String>,
}

/// `GET /v1/jobs`: one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: String,
    /// `waiting`, `starting`, `running`, `succeeded`, `failed`, `cancelled`, `rejected` or `lost`.
    pub state: String,
    /// Why it waits, or what became of it, in a sentence.
    pub reason: Option<String>,
    /// GPUs it needs.
    pub gpus_needed: u32,
    /// The node it runs or ran on.
    pub node: Option<String>,
    /// That node's name.
    pub node_name: Option<String>,
    /// Its GPUs, as `index (model)`.
    pub gpus: Vec<String>,
    /// UUIDs of its GPUs.
    pub gpu_uuids: Vec<String>,
    /// Number of its attempt.
    pub attempt: u64,
    /// When it was submitted.
    pub submitted: Option<String>,
    /// When its task was started.
    pub started: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// What a shell would show as its exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// Name of its home.
    pub home: String,
}

impl JobView {
    /// Whether it will not change any more.
    pub fn is_ended(&self) -> bool {
        !matches!(self.state.as_str(), "waiting" | "starting" | "running")
    }
}

/// `POST /v1/jobs`: what a user submits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// What the job is called.
    pub name: String,
    /// How many GPUs.
    pub gpus: u32,
    /// Part of a model's name.
    pub gpu_model: Option<String>,
    /// Least bytes of memory of each GPU.
    pub gpu_memory_bytes: Option<u64>,
    /// The only node that will do, by name or id.
    pub node: Option<String>,
    /// The program and its arguments, each in base64: they are bytes, not text.
    pub args: Vec<String>,
    /// Variables, names and values in base64.
    pub env: Vec<(String, String)>,
    /// Directory on the node, in base64.
    pub chdir: Option<String>,
    /// Whether standard input is forwarded.
    pub stdin: bool,
}

/// `GET /v1/addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Where this node can be dialled, peer id included.
    pub addresses: Vec<String>,
}

/// `GET /v1/changes?since=N`: answers when something has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// To be asked with next time.
    pub seq: u64,
}

/// Any failure: `{"error": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ApiError,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Stable, for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl ApiError {
    /// An error with a code and a sentence.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hints: Vec::new() }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

//! What one node says of itself.
//!
//! A report is signed by its node and versioned by (incarnation, version); the newest wins. It is
//! pushed when something changes, never as a heartbeat. It carries no wall-clock time but those
//! that people read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::{Attempt, GpuUuid, Incarnation, JobId, LeaseSeq, NodeId, Version};
use super::signed::Signable;
use super::time::WallTime;

/// The place in the order of arrival of a node that has none yet: nobody has admitted it.
pub const NO_PLACE: u64 = u64::MAX;

/// The latest that a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    /// Whose report this is. A report that another key signed is dropped.
    pub node: NodeId,
    /// Start of the daemon that wrote it.
    pub incarnation: Incarnation,
    /// Counts the changes within the incarnation.
    pub version: Version,
    /// What people call the machine: its host name unless the operator chose another.
    pub name: String,
    /// Operator's words about the node, `key=value`.
    pub labels: BTreeMap<String, String>,
    /// Operator's wish to see this node as controller: higher is better placed.
    pub priority: i32,
    /// Order of arrival in the mesh: 0 is the founder; lower has been a member for longer.
    /// Clock-free. [`NO_PLACE`] until it has been admitted.
    pub seniority: u64,
    /// Whether new tasks are taken.
    pub state: NodeState,
    /// Every GPU of the node, offered or not.
    pub gpus: Vec<Gpu>,
    /// Why the node has no GPU, or could not look; `None` if it has some or was told to have none.
    pub gpus_note: Option<String>,
    /// Logical CPUs.
    pub cpus: u32,
    /// Bytes of memory of the machine.
    pub memory_bytes: u64,
    /// Bytes of it that are available, as of the last report (rounded, so that it changes seldom).
    pub memory_free_bytes: u64,
    /// Version of the gpuvine that runs there.
    pub software: String,
    /// Multiaddresses at which the node can be dialled.
    pub addresses: Vec<String>,
    /// What proves that the node is a member, and what it may do, to those who have never met it:
    /// its credential, which the core does not read.
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Vec::is_empty")]
    pub proof: Vec<u8>,
    /// Tasks without a GPU that run there (GPU tasks are seen at the GPUs).
    pub gpuless_tasks: Vec<LeaseView>,
}

impl Signable for Report {
    const CONTEXT: &'static [u8] = b"gpuvine/report/1\0";
}

impl Report {
    /// What decides which of two reports of one node is newer.
    pub fn age(&self) -> (Incarnation, Version) {
        (self.incarnation, self.version)
    }

    /// The GPU with this UUID.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }
}

/// Whether a node takes tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// New tasks are taken.
    #[default]
    Serving,
    /// Running tasks go on, new ones are refused.
    Draining,
    /// The daemon is about to stop.
    Leaving,
}

/// GPUs that one report may name.
pub const GPUS_MAX: usize = 128;

/// Bytes of the proof in a report: what a chain of eight credentials has.
pub const PROOF_MAX: usize = 32 * 1024;

/// Bytes of one text in a report.
pub const TEXT_MAX: usize = 512;

/// A text that fits into a report: the beginning of a longer one.
pub fn clip(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX)].to_owned()
}

/// One GPU of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's name for it.
    pub uuid: GpuUuid,
    /// Its index in PCI bus order: what `CUDA_VISIBLE_DEVICES` means there.
    pub index: u32,
    /// Its model, e.g. `NVIDIA A100-SXM4-80GB`.
    pub model: String,
    /// Bytes of memory; 0 if the driver does not say.
    pub memory_bytes: u64,
    /// Bytes of it that are free.
    pub memory_free_bytes: u64,
    /// How busy it is, in percent; `None` if the driver does not say.
    pub utilization: Option<u8>,
    /// Whether it can be used at all.
    pub health: GpuHealth,
    /// How often it was leased: a grant must name this number.
    pub seq: LeaseSeq,
    /// Who has it.
    pub lease: Option<LeaseView>,
}

impl Gpu {
    /// Whether it could be leased right now.
    pub fn is_free(&self) -> bool {
        self.lease.is_none() && self.health == GpuHealth::Usable
    }
}

/// Whether a GPU can be used, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    /// It can be leased.
    #[default]
    Usable,
    /// It cannot, because of this.
    Broken(String),
    /// Processes that SIGKILL does not end still hold it.
    Quarantined(String),
}

/// A lease as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseView {
    /// Whose task it is.
    pub job: JobId,
    /// Which attempt.
    pub attempt: Attempt,
    /// What the user called the job, or its command.
    pub name: String,
    /// The job's owner.
    pub owner: String,
    /// The job's home node.
    pub home: NodeId,
    /// When the task was started, for people.
    pub since: WallTime,
    /// How far it is.
    pub state: LeaseState,
}

/// How far a lease is. It ends when the task's processes are gone, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// The task has been accepted, its process is being started.
    Starting,
    /// The task's command runs.
    Running,
    /// The command has ended or was told to; some of its processes are still alive.
    Draining,
}

#[cfg(test)]
pub(crate) mod testing {
    //! Reports for the tests of the machines that read them.

    use super::*;

    /// The node with this number.
    pub(crate) fn node(number: u8) -> NodeId {
        crate::core::signed::Key::from_seed(&[number; 32]).id()
    }

    /// A free GPU with so many GiB.
    pub(crate) fn gpu(uuid: &str, model: &str, gib: u64) -> Gpu {
        Gpu {
            uuid: GpuUuid(uuid.into()),
            index: 0,
            model: model.into(),
            memory_bytes: gib << 30,
            memory_free_bytes: gib << 30,
            utilization: Some(0),
            health: GpuHealth::Usable,
            seq: LeaseSeq(0),
            lease: None,
        }
    }

    /// The first report of a serving node.
    pub(crate) fn report(number: u8, gpus: Vec<Gpu>) -> Report {
        Report {
            node: node(number),
            incarnation: Incarnation(1),
            version: Version(1),
            name: format!("n{number}"),
            labels: BTreeMap::new(),
            priority: 0,
            seniority: u64::from(number),
            state: NodeState::Serving,
            gpus,
            gpus_note: None,
            cpus: 8,
            memory_bytes: 64 << 30,
            memory_free_bytes: 32 << 30,
            software: "test".into(),
            addresses: Vec::new(),
            proof: Vec::new(),
            gpuless_tasks: Vec::new(),
        }
    }
}

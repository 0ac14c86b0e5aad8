//! What a user asks for, and what the mesh answers when it cannot give it.

use serde::{Deserialize, Serialize};

use super::id::NodeId;

/// The GPUs that one task needs, all on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Need {
    /// How many GPUs. Zero is a task that needs none.
    pub gpus: u32,
    /// Part of the model's name, compared without case, blanks as `-` or `_`: `a100`, `rtx_4090`.
    pub model: Option<String>,
    /// Least bytes of memory of each GPU.
    pub memory_bytes: Option<u64>,
    /// The only node that will do.
    pub node: Option<NodeId>,
}

/// The nearest that a mesh has to a need that it cannot fill, for the sentence the user reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Best {
    /// Name of the node that comes closest, if any has a GPU at all.
    pub node: Option<String>,
    /// How many matching GPUs that node owns, free or not.
    pub gpus: u32,
    /// Largest number of GPUs of any kind on one node.
    pub gpus_any: u32,
    /// Most bytes of memory that one GPU of the mesh has.
    pub memory_bytes_max: u64,
    /// The models that exist, each once, at most 16.
    pub models: Vec<String>,
}

/// Why a request waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WaitReason {
    /// There is no controller, or it has not answered yet.
    NoController,
    /// Matching GPUs exist, all of them are taken.
    Busy {
        /// Matching GPUs of the mesh.
        matching: u32,
        /// How many of them are free now (fewer than needed on each node).
        free: u32,
        /// Requests that are before this one.
        ahead: u32,
    },
    /// Matching GPUs are free, but an earlier request comes first.
    Behind {
        /// Requests that are before this one.
        ahead: u32,
    },
    /// The controller's queue has no room for it; it is asked again from time to time.
    Full,
    /// The granted node has not answered yet.
    Starting {
        /// Name of the node.
        node: NodeId,
    },
}

//! What a task is, and how it ended.

use serde::{Deserialize, Serialize};

use super::id::{Attempt, JobId};

/// A command to run. Everything that a user typed is bytes: it is never parsed or quoted again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments; the first is the program. Never empty, no NUL bytes.
    pub args: Vec<serde_bytes::ByteBuf>,
    /// Variables set for the task on top of a clean environment. No `=` or NUL in names.
    pub env: Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)>,
    /// The directory on the node in which to run; a private one for the attempt if absent.
    pub chdir: Option<serde_bytes::ByteBuf>,
    /// Whether the user's standard input is forwarded; otherwise it is empty.
    pub stdin: bool,
}

/// One attempt of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The job.
    pub job: JobId,
    /// Which attempt of it.
    pub attempt: Attempt,
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.job, self.attempt)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// The command exited with this code.
    Exited {
        /// 0 to 255.
        code: i32,
    },
    /// A signal killed the command.
    Signaled {
        /// Its number.
        signal: i32,
    },
    /// The command could not be started.
    Failed {
        /// Why, in a sentence for the user.
        why: String,
    },
    /// What became of it is not known: its keeper or its machine died with it.
    Lost {
        /// Why, in a sentence for the user.
        why: String,
    },
}

impl Outcome {
    /// The exit code that a shell would show: the command's own, or 128 + signal; 1 for the rest,
    /// 127 and 126 are used by `Failed` only through the keeper's `Exited`.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Exited { code } => *code,
            Self::Signaled { signal } => 128 + signal,
            Self::Failed { .. } | Self::Lost { .. } => 1,
        }
    }
}

//! What a task finds in its environment: clean, complete, and never the daemon's own.
//!
//! The user's variables come on top of a small base; ours come on top of the user's, so that nobody
//! grants themselves GPUs by setting a variable. Names follow what scripts already read: CUDA's and
//! the container runtime's, Slurm's, and `GPUVINE_*` for the same things.

use crate::core::id::{GpuUuid, NodeId};
use crate::core::task::TaskId;

use super::processes::MARK;

/// A variable.
pub type Variable = (Vec<u8>, Vec<u8>);

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a task's environment tells of it.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The task.
    pub task: TaskId,
    /// The job's name.
    pub job_name: &'a str,
    /// The job's owner.
    pub owner: &'a str,
    /// This node's name and id.
    pub node_name: &'a str,
    /// See `node_name`.
    pub node: NodeId,
    /// The home's name.
    pub home_name: &'a str,
    /// The GPUs, with their indices in PCI bus order.
    pub gpus: &'a [(GpuUuid, u32)],
    /// The task's own directory.
    pub work: &'a std::path::Path,
    /// What the task inherits of the account that it runs under: HOME, USER and the like.
    pub account: &'a [Variable],
}

/// The environment of a task whose user set `user`.
pub fn environment(facts: &Facts<'_>, user: &[Variable]) -> Vec<Variable> {
    let mut variables: Vec<Variable> = vec![
        pair("PATH", PATH),
        pair("LANG", "C.UTF-8"),
        pair("TMPDIR", &facts.work.to_string_lossy()),
    ];
    for variable in facts.account.iter().chain(user).cloned().chain(ours(facts)) {
        variables.retain(|(name, _)| *name != variable.0);
        variables.push(variable);
    }
    variables
}

/// What nobody overrides.
fn ours(facts: &Facts<'_>) -> Vec<Variable> {
    let mut indices: Vec<u32> = facts.gpus.iter().map(|(_, index)| *index).collect();
    indices.sort_unstable();
    let list: Vec<String> = indices.iter().map(u32::to_string).collect();
    let uuids: Vec<&str> = facts.gpus.iter().map(|(uuid, _)| uuid.0.as_str()).collect();
    let (list, uuids) = (list.join(","), uuids.join(","));
    let none = facts.gpus.is_empty();
    let (job, attempt) = (facts.task.job.to_string(), facts.task.attempt.to_string());
    let count = facts.gpus.len().to_string();
    let node = facts.node.to_string();
    vec![
        // An empty CUDA_VISIBLE_DEVICES means different things to different programs; no device has
        // the number -1.
        pair("CUDA_VISIBLE_DEVICES", if none { "-1" } else { &list }),
        pair("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        pair("NVIDIA_VISIBLE_DEVICES", if none { "void" } else { &uuids }),
        pair(MARK, &facts.task.to_string()),
        pair("GPUVINE_JOB_ID", &job),
        pair("GPUVINE_JOB_NAME", facts.job_name),
        pair("GPUVINE_ATTEMPT", &attempt),
        pair("GPUVINE_OWNER", facts.owner),
        pair("GPUVINE_NODE", facts.node_name),
        pair("GPUVINE_NODE_ID", &node),
        pair("GPUVINE_SUBMIT_NODE", facts.home_name),
        pair("GPUVINE_GPUS", &uuids),
        pair("GPUVINE_GPU_COUNT", &count),
        pair("SLURM_JOB_ID", &job),
        pair("SLURM_JOBID", &job),
        pair("SLURM_JOB_NAME", facts.job_name),
        pair("SLURM_JOB_USER", facts.owner),
        pair("SLURM_JOB_NODELIST", facts.node_name),
        pair("SLURM_JOB_NUM_NODES", "1"),
        pair("SLURM_NNODES", "1"),
        pair("SLURM_NODEID", "0"),
        pair("SLURMD_NODENAME", facts.node_name),
        pair("SLURM_NTASKS", "1"),
        pair("SLURM_NPROCS", "1"),
        pair("SLURM_PROCID", "0"),
        pair("SLURM_LOCALID", "0"),
        pair("SLURM_GPUS_ON_NODE", &count),
        pair("SLURM_JOB_GPUS", &list),
        pair("SLURM_SUBMIT_HOST", facts.home_name),
    ]
}

fn pair(name: &str, value: &str) -> Variable {
    // A value with a NUL in it cannot be one; names come from members, and are cut there.
    let value = value.split('\0').next().unwrap_or_default();
    (name.into(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{Attempt, JobId};

    fn environment_with(gpus: &[(GpuUuid, u32)], user: &[Variable]) -> Vec<Variable> {
        let facts = Facts {
            task: TaskId { job: JobId::from_bits(1), attempt: Attempt(2) },
            job_name: "train",
            owner: "ada",
            node_name: "alpha",
            node: NodeId([1; 32]),
            home_name: "beta",
            gpus,
            work: std::path::Path::new("/w"),
            account: &[pair("HOME", "/home/ada")],
        };
        environment(&facts, user)
    }

    fn value<'a>(variables: &'a [Variable], name: &str) -> &'a [u8] {
        let mut found = variables.iter().filter(|(key, _)| key == name.as_bytes());
        let value = &found.next().unwrap().1;
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }

    #[test]
    fn gpus_are_indices_in_bus_order_and_uuids() {
        let gpus = [(GpuUuid("GPU-b".into()), 3), (GpuUuid("GPU-a".into()), 1)];
        let variables = environment_with(&gpus, &[]);
        assert_eq!(value(&variables, "CUDA_VISIBLE_DEVICES"), b"1,3");
        assert_eq!(value(&variables, "CUDA_DEVICE_ORDER"), b"PCI_BUS_ID");
        assert_eq!(value(&variables, "NVIDIA_VISIBLE_DEVICES"), b"GPU-b,GPU-a");
        assert_eq!(value(&variables, "SLURM_GPUS_ON_NODE"), b"2");
    }

    #[test]
    fn a_task_without_gpus_sees_none() {
        let variables = environment_with(&[], &[]);
        assert_eq!(value(&variables, "CUDA_VISIBLE_DEVICES"), b"-1");
        assert_eq!(value(&variables, "NVIDIA_VISIBLE_DEVICES"), b"void");
    }

    #[test]
    fn the_user_overrides_the_base_and_never_the_gpus() {
        let user = [
            pair("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
            pair("PATH", "/opt/bin"),
            (b"RAW".to_vec(), b"\xff\xfe".to_vec()),
        ];
        let variables = environment_with(&[], &user);
        assert_eq!(value(&variables, "CUDA_VISIBLE_DEVICES"), b"-1");
        assert_eq!(value(&variables, "PATH"), b"/opt/bin");
        assert_eq!(value(&variables, "RAW"), b"\xff\xfe");
        assert_eq!(value(&variables, "HOME"), b"/home/ada");
    }
}

//! Rule 1 of the design: no two living tasks have one GPU, in any split and under any two
//! controllers.

use std::collections::BTreeMap;

use gpuvine::core::id::GpuUuid;
use gpuvine::core::task::TaskId;

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    held: BTreeMap<GpuUuid, TaskId>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_lease_per_gpu"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Started { task, gpus, .. } => {
                for gpu in *gpus {
                    if let Some(other) = self.held.insert(gpu.clone(), *task) {
                        return Err(format!("{task} has {gpu}, which {other} has"));
                    }
                }
            }
            Fact::Gone { task, .. } | Fact::Lost { task } => {
                self.held.retain(|_, holder| holder != task);
            }
            _ => {}
        }
        Ok(())
    }
}

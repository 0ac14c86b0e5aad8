//! GPUs that do not exist: for tests, demos, and trying gpuvine out.

use std::str::FromStr;

use super::{Device, Inventory, Reading};
use crate::core::id::{GpuUuid, NodeId};
use crate::core::report::GpuHealth;

/// GPUs of one machine.
const GPUS_MAX: u32 = 64;

/// What machine to simulate, e.g. `4xA100-80G,2xRTX4090-24G`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    kinds: Vec<Kind>,
    node: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    count: u32,
    model: String,
    gib: u64,
}

/// A text that describes no GPUs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseSimulatedError {
    /// A part of it is not understood.
    #[error("`{part}` {wrong}: write COUNTxMODEL-MEMORYG, e.g. 4xA100-80G,2xRTX4090-24G")]
    Part {
        /// The part.
        part: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// It describes more than fits into a machine.
    #[error("{0} simulated GPUs are more than the {GPUS_MAX} of a machine")]
    TooMany(u32),
}

impl FromStr for Simulated {
    type Err = ParseSimulatedError;

    fn from_str(text: &str) -> Result<Self, ParseSimulatedError> {
        let kinds: Vec<Kind> = text
            .split(',')
            .map(|part| {
                kind(part.trim())
                    .map_err(|wrong| ParseSimulatedError::Part { part: part.to_owned(), wrong })
            })
            .collect::<Result<_, _>>()?;
        let count = kinds.iter().fold(0u32, |sum, kind| sum.saturating_add(kind.count));
        match count {
            0..=GPUS_MAX => Ok(Self { kinds, node: None }),
            _ => Err(ParseSimulatedError::TooMany(count)),
        }
    }
}

/// One kind of GPU, or what is wrong with it.
fn kind(part: &str) -> Result<Kind, &'static str> {
    let (count, rest) = part.split_once('x').ok_or("has no `x` behind the number of GPUs")?;
    let count = count.parse().ok().filter(|count| *count > 0);
    let count = count.ok_or("does not begin with a number of GPUs")?;
    let (model, memory) = rest.rsplit_once('-').ok_or("does not say how much memory a GPU has")?;
    let gib = memory.strip_suffix(['G', 'g']).and_then(|gib| gib.parse().ok());
    let gib = gib.filter(|gib| (1..=4_096).contains(gib));
    let gib = gib.ok_or("does not end with memory of 1G to 4096G")?;
    if model.is_empty() {
        return Err("names no model");
    }
    Ok(Kind { count, model: model.to_owned(), gib })
}

impl Simulated {
    /// The GPUs of one node: their UUIDs are its own, and the same after each start.
    #[must_use]
    pub fn of(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }
}

impl Inventory for Simulated {
    fn read(&mut self) -> Reading {
        let owner = self.node.map_or_else(String::new, NodeId::short);
        let models = self.kinds.iter().flat_map(|kind| (0..kind.count).map(move |_| kind));
        let gpus = (0..).zip(models).map(|(index, kind)| Device {
            uuid: GpuUuid(format!("GPU-sim-{owner}-{index}")),
            index,
            model: kind.model.clone(),
            memory_bytes: kind.gib << 30,
            memory_free_bytes: kind.gib << 30,
            utilization: Some(0),
            health: GpuHealth::Usable,
        });
        Reading { gpus: gpus.collect(), note: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_in_one_word() {
        let mut gpus: Simulated = "4xA100-80G,2xRTX4090-24G".parse().unwrap();
        let reading = gpus.read();
        assert_eq!(reading.gpus.len(), 6);
        assert_eq!((reading.gpus[5].model.as_str(), reading.gpus[5].index), ("RTX4090", 5));
        assert_eq!(reading.gpus[0].memory_bytes, 80 << 30);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let part = |text: &str| text.parse::<Simulated>().unwrap_err();
        assert_eq!(
            part("4xA100-80G,two").to_string(),
            "`two` has no `x` behind the number of GPUs: write COUNTxMODEL-MEMORYG, e.g. \
             4xA100-80G,2xRTX4090-24G"
        );
        assert!(part("4xA100").to_string().contains("`4xA100` does not say how much memory"));
        for bad in ["", "x", "0xA100-80G", "4xA100", "4xA100-0G", "4x-80G", "99999999999xA-1G"] {
            assert!(bad.parse::<Simulated>().is_err(), "{bad}");
        }
        assert_eq!(part("65xA100-80G"), ParseSimulatedError::TooMany(65));
    }
}

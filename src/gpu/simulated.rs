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
    #[error(
        "`{0}` is not a number of GPUs: write e.g. 4xA100-80G (count, model, gigabytes), with commas between several"
    )]
    Part(String),
    /// It describes more than fits into a machine.
    #[error("{0} simulated GPUs are more than the {GPUS_MAX} of a machine")]
    TooMany(u32),
}

impl FromStr for Simulated {
    type Err = ParseSimulatedError;

    fn from_str(text: &str) -> Result<Self, ParseSimulatedError> {
        let kinds: Vec<Kind> = text
            .split(',')
            .map(|part| kind(part.trim()).ok_or_else(|| ParseSimulatedError::Part(part.to_owned())))
            .collect::<Result<_, _>>()?;
        let count = kinds.iter().fold(0u32, |sum, kind| sum.saturating_add(kind.count));
        match count {
            0..=GPUS_MAX => Ok(Self { kinds, node: None }),
            _ => Err(ParseSimulatedError::TooMany(count)),
        }
    }
}

fn kind(part: &str) -> Option<Kind> {
    let (count, rest) = part.split_once('x')?;
    let (model, memory) = rest.rsplit_once('-')?;
    let gib =
        memory.strip_suffix(['G', 'g'])?.parse().ok().filter(|gib| (1..=4_096).contains(gib))?;
    let count = count.parse().ok().filter(|count| *count > 0)?;
    (!model.is_empty()).then(|| Kind { count, model: model.to_owned(), gib })
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
        assert_eq!(part("4xA100-80G,two"), ParseSimulatedError::Part("two".into()));
        for bad in ["", "x", "0xA100-80G", "4xA100", "4xA100-0G", "4x-80G", "99999999999xA-1G"] {
            assert!(bad.parse::<Simulated>().is_err(), "{bad}");
        }
        assert_eq!(part("65xA100-80G"), ParseSimulatedError::TooMany(65));
    }
}

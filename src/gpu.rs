//! Which GPUs this machine has.
//!
//! A machine without a driver has none, and says why; that is never a failure. One GPU that is lost
//! takes no other with it.

#[cfg(feature = "daemon")]
mod nvml;
mod simulated;

use crate::core::id::{GpuUuid, LeaseSeq};
use crate::core::report::{Gpu, GpuHealth};

#[cfg(feature = "daemon")]
pub use self::nvml::Nvml;
pub use self::simulated::{ParseSimulatedError, Simulated};

/// What is seen at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The GPUs, in the order of their indices.
    pub gpus: Vec<Device>,
    /// Why there is none, or some are not shown.
    pub note: Option<String>,
}

/// One GPU as its driver shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's name for it.
    pub uuid: GpuUuid,
    /// Its index in PCI bus order.
    pub index: u32,
    /// Its model.
    pub model: String,
    /// Bytes of memory; 0 if the driver does not say.
    pub memory_bytes: u64,
    /// Bytes of it that are free.
    pub memory_free_bytes: u64,
    /// How busy it is, in percent.
    pub utilization: Option<u8>,
    /// Whether it can be used.
    pub health: GpuHealth,
}

/// A way to look at GPUs.
pub trait Inventory: std::fmt::Debug + Send {
    /// Looks.
    fn read(&mut self) -> Reading;
}

impl From<Device> for Gpu {
    /// A GPU whose leases only the ledger knows.
    fn from(device: Device) -> Self {
        Self {
            uuid: device.uuid,
            index: device.index,
            model: device.model,
            memory_bytes: device.memory_bytes,
            memory_free_bytes: device.memory_free_bytes,
            utilization: device.utilization,
            health: device.health,
            seq: LeaseSeq(0),
            lease: None,
        }
    }
}

/// No GPUs, as the operator wants it, or for another reason.
#[derive(Clone, Debug)]
pub struct NoGpus {
    /// Why, if the operator did not say so.
    pub why: Option<String>,
}

impl Inventory for NoGpus {
    fn read(&mut self) -> Reading {
        Reading { gpus: Vec::new(), note: self.why.clone() }
    }
}

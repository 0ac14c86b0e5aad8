//! The GPUs that NVIDIA's driver shows (NVML).
//!
//! NVML numbers devices in PCI bus order, which is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` makes of
//! `CUDA_VISIBLE_DEVICES`. What the driver does not tell is left out, never guessed; what it tells
//! in words that are not known yet is left out too, and the GPU stays offered.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as Handle, Nvml as Library};

use super::{Device, Inventory, Reading};
use crate::core::id::GpuUuid;
use crate::core::report::GpuHealth;

/// NVIDIA's GPUs. The driver is looked for again at each look until it is there.
#[derive(Debug)]
pub struct Nvml {
    library: Option<Library>,
    /// The daemon's own `CUDA_VISIBLE_DEVICES`: of these it may offer, and no others.
    mask: Option<Vec<String>>,
    /// Bytes of the machine's memory, and of them available: what a GPU without memory of its own
    /// uses.
    memory: fn() -> (u64, u64),
    /// The GPUs as they were last seen: one that is lost does not say any more who it is.
    known: Vec<Device>,
}

impl Nvml {
    /// NVIDIA's GPUs, of which `mask` (a `CUDA_VISIBLE_DEVICES`) lets some through.
    pub fn new(mask: Option<&str>, memory: fn() -> (u64, u64)) -> Self {
        let list = |mask: &str| {
            // CUDA's rule: what comes after the first invalid entry is hidden.
            mask.split(',')
                .map(str::trim)
                .take_while(|entry| !entry.is_empty() && !entry.starts_with('-'))
                .map(str::to_owned)
                .collect()
        };
        Self { library: None, mask: mask.map(list), memory, known: Vec::new() }
    }

    fn offers(&self, device: &Device) -> bool {
        let named = |entry: &String| {
            entry.parse() == Ok(device.index)
                || (entry.starts_with("GPU-") && device.uuid.0.starts_with(entry.as_str()))
        };
        self.mask.as_ref().is_none_or(|mask| mask.iter().any(named))
    }
}

impl Inventory for Nvml {
    fn read(&mut self) -> Reading {
        if self.library.is_none() {
            match Library::init() {
                Ok(library) => self.library = Some(library),
                Err(error) => return none(&error),
            }
        }
        let Some(library) = &self.library else { return Reading::default() };
        let count = match library.device_count() {
            Ok(count) => count,
            Err(error) => {
                // The driver was updated or unloaded under the daemon: begin anew at the next look.
                let reading = none(&error);
                self.library = None;
                return reading;
            }
        };
        let seen = (0..count).map(|index| match library.device_by_index(index) {
            Ok(handle) => look(&handle, index, self.memory),
            Err(error) => broken(index, &error),
        });
        let seen = name_lost(seen.collect(), &self.known);
        self.known = seen.iter().filter(|device| !is_nameless(device)).cloned().collect();
        let gpus: Vec<Device> = seen.into_iter().filter(|device| self.offers(device)).collect();
        let note = match (gpus.is_empty(), count) {
            (false, _) => None,
            (true, 0) => Some("the NVIDIA driver shows no GPU".to_owned()),
            (true, _) => {
                Some("the daemon's CUDA_VISIBLE_DEVICES lets none of the GPUs through".to_owned())
            }
        };
        Reading { gpus, note }
    }
}

/// A machine without a usable driver: no GPUs, and why.
fn none(error: &NvmlError) -> Reading {
    let why = match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            "there is no NVIDIA driver on this machine".to_owned()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".to_owned(),
        NvmlError::NoPermission => "this user may not use the NVIDIA driver".to_owned(),
        other => format!("the NVIDIA driver does not answer: {other}"),
    };
    Reading { gpus: Vec::new(), note: Some(why) }
}

fn look(handle: &Handle<'_>, index: u32, memory_of_machine: fn() -> (u64, u64)) -> Device {
    let uuid = match handle.uuid() {
        Ok(uuid) => GpuUuid(uuid),
        Err(error) => return broken(index, &error),
    };
    let (memory_bytes, memory_free_bytes) = match handle.memory_info() {
        Ok(memory) => (memory.total, memory.free),
        // One memory for processor and GPU.
        Err(NvmlError::NotSupported) => memory_of_machine(),
        Err(_) => (0, 0),
    };
    let sliced = handle.mig_mode().is_ok_and(|mode| mode.current != 0);
    let health = match handle.memory_info() {
        Err(NvmlError::GpuLost) => GpuHealth::Broken("the driver has lost it".into()),
        _ if sliced => GpuHealth::Broken("it is divided by MIG, which is not offered yet".into()),
        _ => GpuHealth::Usable,
    };
    Device {
        uuid,
        index,
        model: handle.name().unwrap_or_else(|_| "NVIDIA GPU".into()),
        memory_bytes,
        memory_free_bytes,
        utilization: handle.utilization_rates().ok().and_then(|rates| rates.gpu.try_into().ok()),
        health,
    }
}

/// A GPU that does not say who it is. The others are not concerned.
fn broken(index: u32, error: &NvmlError) -> Device {
    Device {
        uuid: GpuUuid(format!("{NAMELESS}{index}")),
        index,
        model: "NVIDIA GPU".into(),
        memory_bytes: 0,
        memory_free_bytes: 0,
        utilization: None,
        health: GpuHealth::Broken(error.to_string()),
    }
}

/// How the made-up names begin of GPUs that do not say who they are.
const NAMELESS: &str = "GPU-unknown-";

fn is_nameless(device: &Device) -> bool {
    device.uuid.0.starts_with(NAMELESS)
}

/// Gives a GPU that does not say who it is the name that was known at its index, unless another
/// has that now: it would be shown twice, once as vanished and once as unknown.
fn name_lost(seen: Vec<Device>, known: &[Device]) -> Vec<Device> {
    let named: Vec<GpuUuid> = seen.iter().map(|device| device.uuid.clone()).collect();
    let name = |device: Device| {
        let before = known.iter().find(|known| known.index == device.index);
        match before.filter(|known| is_nameless(&device) && !named.contains(&known.uuid)) {
            Some(before) => Device {
                uuid: before.uuid.clone(),
                model: before.model.clone(),
                memory_bytes: before.memory_bytes,
                ..device
            },
            None => device,
        }
    };
    seen.into_iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_has_no_gpus_and_says_why() {
        // Where these tests run with a driver, the reading is that driver's.
        let reading = Nvml::new(None, || (0, 0)).read();
        assert!(!reading.gpus.is_empty() || reading.note.is_some());
    }

    /// It was shown twice: under its name as vanished, and under a made-up one as broken.
    #[test]
    fn a_gpu_whose_handle_is_lost_keeps_its_name() {
        let lost = || broken(1, &NvmlError::GpuLost);
        let device = |index, uuid: &str| Device {
            uuid: GpuUuid(uuid.into()),
            model: "A100".into(),
            health: GpuHealth::Usable,
            ..broken(index, &NvmlError::GpuLost)
        };
        let known = [device(0, "GPU-a"), device(1, "GPU-b")];
        let seen = name_lost(vec![device(0, "GPU-a"), lost()], &known);
        assert_eq!((seen.len(), seen[1].uuid.0.as_str()), (2, "GPU-b"));
        assert_eq!(seen[1].model, "A100");
        assert!(matches!(seen[1].health, GpuHealth::Broken(_)));
        // Another has its name, or none was ever known there.
        assert_eq!(name_lost(vec![device(0, "GPU-b"), lost()], &known)[1], lost());
        assert_eq!(name_lost(vec![lost()], &[]), [lost()]);
    }

    #[test]
    fn the_daemons_own_mask_is_read_as_cuda_does() {
        let device = |index: u32, uuid: &str| Device {
            index,
            uuid: GpuUuid(uuid.into()),
            ..broken(0, &NvmlError::NotSupported)
        };
        let nvml = Nvml::new(Some("0,GPU-abc,-1,1"), || (0, 0));
        assert!(nvml.offers(&device(0, "GPU-xyz")));
        assert!(nvml.offers(&device(5, "GPU-abcdef")));
        assert!(!nvml.offers(&device(1, "GPU-xyz")));
        assert!(Nvml::new(None, || (0, 0)).offers(&device(7, "GPU-1")));
        assert!(!Nvml::new(Some(""), || (0, 0)).offers(&device(0, "GPU-1")));
    }
}

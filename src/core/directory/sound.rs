//! Decides whether a report is one: a report beyond these limits or those of its own module is a
//! lie or a mistake, and is dropped.

use std::collections::BTreeSet;

use crate::core::id::GpuUuid;
use crate::core::report::{GPUS_MAX, Gpu, GpuHealth, LeaseView, PROOF_MAX, Report, TEXT_MAX};

/// Labels in one report, and addresses.
const LABELS_MAX: usize = 64;
const ADDRESSES_MAX: usize = 64;

/// Whether a report keeps to the limits, and names each GPU once.
pub(super) fn is_sound(report: &Report) -> bool {
    let text = |text: &str| text.len() <= TEXT_MAX;
    let lease = |lease: &LeaseView| text(&lease.name) && text(&lease.owner);
    let health = |health: &GpuHealth| match health {
        GpuHealth::Usable => true,
        GpuHealth::Broken(why) | GpuHealth::Quarantined(why) => text(why),
    };
    let gpu = |gpu: &Gpu| {
        text(&gpu.uuid.0)
            && text(&gpu.model)
            && health(&gpu.health)
            && gpu.lease.as_ref().is_none_or(lease)
    };
    let uuids: BTreeSet<&GpuUuid> = report.gpus.iter().map(|gpu| &gpu.uuid).collect();
    report.gpus.len() <= GPUS_MAX
        && uuids.len() == report.gpus.len()
        && report.labels.len() <= LABELS_MAX
        && report.addresses.len() <= ADDRESSES_MAX
        && report.proof.len() <= PROOF_MAX
        && text(&report.name)
        && text(&report.software)
        && report.gpus_note.as_deref().is_none_or(text)
        && report.addresses.iter().all(|address| text(address))
        && report.labels.iter().all(|(key, value)| text(key) && text(value))
        && report.gpus.iter().all(gpu)
        && report.gpuless_tasks.iter().all(lease)
}

//! What the ledger keeps of each GPU of the machine, also of those that have gone away: a GPU keeps
//! its slot, and with it its number, so that what comes back under its name is not leased by a
//! grant from before.

use super::{Effect, Ledger};
use crate::core::id::{GpuUuid, LeaseSeq};
use crate::core::outbox::Outbox;
use crate::core::report::{GPUS_MAX, Gpu, GpuHealth, clip};
use crate::core::task::TaskId;

/// GPUs that a ledger keeps: as many as a report may name. One that goes away keeps its slot while
/// there is room.
const SLOTS_MAX: usize = GPUS_MAX;

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) gpu: Gpu,
    pub(super) seq: LeaseSeq,
    pub(super) lease: Option<TaskId>,
    /// Whether the last inventory still had it.
    pub(super) present: bool,
}

impl Ledger {
    pub(super) fn on_inventory(&mut self, gpus: Vec<Gpu>, out: &mut Outbox<Effect>) {
        let before = self.gpus();
        self.slots.values_mut().for_each(|slot| slot.present = false);
        // Those that have slots first, so that none of these is given up for another.
        let (known, new): (Vec<Gpu>, Vec<Gpu>) =
            gpus.into_iter().partition(|gpu| self.slots.contains_key(&gpu.uuid));
        for gpu in known.into_iter().chain(new) {
            if !self.slots.contains_key(&gpu.uuid) && !self.has_room() {
                continue;
            }
            let slot = self.slot(&gpu.uuid);
            slot.gpu = gpu;
            if let GpuHealth::Broken(why) | GpuHealth::Quarantined(why) = &mut slot.gpu.health {
                *why = clip(why);
            }
            slot.present = true;
        }
        if self.gpus() != before {
            out.push(Effect::Changed);
        }
    }

    /// The slot of a GPU, made if there is none.
    pub(super) fn slot(&mut self, uuid: &GpuUuid) -> &mut Slot {
        let floor = self.floor;
        self.slots.entry(uuid.clone()).or_insert_with(|| Slot::absent(uuid, floor))
    }

    /// Whether there is a slot for another GPU; gives up those of vanished ones for it.
    fn has_room(&mut self) -> bool {
        if self.slots.len() < SLOTS_MAX {
            return true;
        }
        let floor = &mut self.floor;
        self.slots.retain(|_, slot| {
            let kept = slot.present || slot.lease.is_some();
            if !kept {
                *floor = (*floor).max(slot.seq.next());
            }
            kept
        });
        self.slots.len() < SLOTS_MAX
    }
}

impl Slot {
    /// A GPU of which only the name is known.
    fn absent(uuid: &GpuUuid, seq: LeaseSeq) -> Self {
        let gpu = Gpu {
            uuid: uuid.clone(),
            index: u32::MAX,
            model: "unknown".into(),
            memory_bytes: 0,
            memory_free_bytes: 0,
            utilization: None,
            health: GpuHealth::Usable,
            seq: LeaseSeq(0),
            lease: None,
        };
        Self { gpu, seq, lease: None, present: false }
    }
}

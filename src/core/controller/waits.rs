//! Remembers, for one walk through the queue, why a need has to wait.
//!
//! What one request could not have the next that wants the same cannot have either: during a walk
//! GPUs are only taken away. So of a long queue of equal requests only the first is looked at.

use std::collections::BTreeMap;

use crate::core::request::{Need, WaitReason};

/// Needs that have to wait.
#[derive(Debug, Default)]
pub(super) struct Waits<'a>(BTreeMap<&'a Need, Found>);

#[derive(Debug)]
struct Found {
    reason: WaitReason,
    /// How many requests had been served before: with each, less is free.
    served: usize,
}

impl<'a> Waits<'a> {
    /// This need has to wait, after so many were served.
    pub(super) fn note(&mut self, need: &'a Need, served: usize, reason: WaitReason) {
        self.0.insert(need, Found { reason, served });
    }

    /// Whether this need was found to have to wait.
    pub(super) fn know(&self, need: &Need) -> bool {
        self.0.contains_key(need)
    }

    /// Why this need has to wait, if that is known, for a request with so many others before it.
    pub(super) fn reason(&self, need: &Need, served: usize, ahead: u32) -> Option<WaitReason> {
        let found = self.0.get(need).filter(|found| found.served == served)?;
        Some(match found.reason {
            WaitReason::Busy { matching, free, .. } => WaitReason::Busy { matching, free, ahead },
            WaitReason::Behind { .. } => WaitReason::Behind { ahead },
            _ => found.reason.clone(),
        })
    }
}

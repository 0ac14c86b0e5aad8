//! The numbers that may never fall: the start of this node, and the highest term.
//!
//! Thirty-two bytes in a file of their own: both numbers and a checksum, replaced whole. A file
//! that is damaged is an error, not a zero.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{StoreError, whole};
use crate::core::id::{Incarnation, Term};

/// The fence of one state folder.
#[derive(Debug)]
pub(super) struct Fence {
    path: PathBuf,
    incarnation: Incarnation,
    term: Term,
    /// What is on disk.
    saved: (Incarnation, Term),
}

impl Fence {
    pub(super) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join("fence");
        let (incarnation, term) = match fs::read(&path) {
            Ok(bytes) => decode(&bytes).ok_or_else(|| {
                let why = "it is damaged; if a backup of it exists put it back, else remove it: \
                           other members remember how far this node was";
                let source = io::Error::new(io::ErrorKind::InvalidData, why);
                StoreError::File { path: path.clone(), source }
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Incarnation(0), Term(0)),
            Err(source) => return Err(StoreError::File { path, source }),
        };
        Ok(Self { path, incarnation, term, saved: (incarnation, term) })
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    /// Raises what is lower.
    pub(super) fn raise(&mut self, incarnation: Incarnation, term: Term) {
        self.incarnation = self.incarnation.max(incarnation);
        self.term = self.term.max(term);
    }

    /// Puts both on disk, unless they are; returns when they are there, and says whether they had
    /// to be put.
    pub(super) fn save(&mut self) -> Result<bool, StoreError> {
        let now = (self.incarnation, self.term);
        if self.saved == now {
            return Ok(false);
        }
        whole::replace(&self.path, &encode(self.incarnation, self.term))
            .map_err(|source| StoreError::File { path: self.path.clone(), source })?;
        self.saved = now;
        Ok(true)
    }
}

fn encode(incarnation: Incarnation, term: Term) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&incarnation.0.to_be_bytes());
    bytes[8..16].copy_from_slice(&term.0.to_be_bytes());
    let checksum = Sha256::digest(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum[..16]);
    bytes
}

fn decode(bytes: &[u8]) -> Option<(Incarnation, Term)> {
    let bytes: &[u8; 32] = bytes.try_into().ok()?;
    let number = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_be_bytes);
    let (incarnation, term) = (Incarnation(number(0)?), Term(number(8)?));
    (encode(incarnation, term) == *bytes).then_some((incarnation, term))
}

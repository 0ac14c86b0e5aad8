//! A task's output in a capped file, addressed by byte offset.
//!
//! The first half of the cap is the beginning of the output, for ever; the second half is a ring
//! that holds its end. What lies between is dropped, and a reader is told exactly which bytes. The
//! writer never waits for a reader: it may be slow, many, or gone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;

use super::folder::{open_new, open_read};

/// Which of a task's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Which {
    /// The name of its file.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Where a byte of the output lies in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    head: u64,
    ring: u64,
}

impl Layout {
    fn new(cap: u64) -> Self {
        let head = cap / 2;
        Self { head, ring: (cap - head).max(1) }
    }

    /// The position of an offset, and how many bytes from there lie side by side.
    fn locate(self, offset: u64) -> (u64, u64) {
        match offset.checked_sub(self.head) {
            None => (offset, self.head - offset),
            Some(past) => {
                let at = past % self.ring;
                (self.head + at, self.ring - at)
            }
        }
    }

    /// The first offset at or after `offset` that is still kept.
    fn kept_from(self, offset: u64, total: u64) -> u64 {
        let ring_starts = total.saturating_sub(self.ring).max(self.head);
        if offset < self.head || offset >= ring_starts { offset } else { ring_starts }
    }
}

/// The writing end.
#[derive(Debug)]
pub(super) struct OutputWriter {
    file: File,
    layout: Layout,
    total: u64,
}

impl OutputWriter {
    /// A new, empty file.
    pub(super) fn create(folder: &Path, which: Which, cap: u64) -> io::Result<Self> {
        let file = open_new(&folder.join(which.file()))?;
        Ok(Self { file, layout: Layout::new(cap), total: 0 })
    }

    /// How many bytes there were in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Appends bytes. A full disk loses them, not the task: they count as written, and read as
    /// zeros or as an end.
    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (at, room) = self.layout.locate(self.total);
            let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            // Whether the disk is full is the node's to notice; this task goes on.
            let _ = self.file.write_all_at(&bytes[..len], at);
            self.total += len as u64;
            bytes = &bytes[len..];
        }
    }
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// These bytes.
    Data(Bytes),
    /// Nothing yet: there are no bytes at that offset so far.
    Empty,
    /// The bytes up to this offset are not kept.
    Gap(u64),
}

/// The reading end of one output. Any number of them, with or without a keeper.
#[derive(Debug)]
pub struct OutputReader {
    file: File,
    layout: Layout,
}

impl OutputReader {
    pub(super) fn open(folder: &Path, which: Which, cap: u64) -> io::Result<Self> {
        let file = open_read(&folder.join(which.file()))?;
        Ok(Self { file, layout: Layout::new(cap) })
    }

    /// Reads at most `max` bytes at `offset`; `total` tells how many there were just now.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, offset: u64, max: usize, total: impl Fn() -> u64) -> io::Result<Chunk> {
        let before = total();
        if offset >= before {
            return Ok(Chunk::Empty);
        }
        let kept = self.layout.kept_from(offset, before);
        if kept > offset {
            return Ok(Chunk::Gap(kept));
        }
        let (at, room) = self.layout.locate(offset);
        let len = room.min(before - offset).min(max as u64);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(max)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], at + filled as u64) {
                // Bytes that a full disk lost.
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The ring may have come round while it was read; the bytes it reached are not those.
        // The writer may be one write ahead of what it told.
        let after = total().saturating_add(super::keeper::WRITE_MAX as u64);
        let kept = self.layout.kept_from(offset, after);
        if kept > offset && offset >= self.layout.head {
            return Ok(Chunk::Gap(kept.min(before)));
        }
        Ok(Chunk::Data(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(cap: u64) -> (tempfile::TempDir, OutputWriter, OutputReader) {
        let folder = tempfile::tempdir().unwrap();
        let writer = OutputWriter::create(folder.path(), Which::Stdout, cap).unwrap();
        let reader = OutputReader::open(folder.path(), Which::Stdout, cap).unwrap();
        (folder, writer, reader)
    }

    /// Reads everything; what is missing becomes `None`.
    fn all(reader: &OutputReader, total: u64) -> Vec<Option<u8>> {
        let mut read = Vec::new();
        loop {
            match reader.read(read.len() as u64, 7, || total).unwrap() {
                Chunk::Data(bytes) => read.extend(bytes.iter().copied().map(Some)),
                Chunk::Gap(to) => read.resize(usize::try_from(to).unwrap(), None),
                Chunk::Empty => return read,
            }
        }
    }

    #[test]
    fn output_within_the_cap_is_read_back_exactly() {
        let (_folder, mut writer, reader) = files(1 << 20);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        bytes.chunks(777).for_each(|part| writer.append(part));
        let read: Vec<u8> = all(&reader, writer.total()).into_iter().map(Option::unwrap).collect();
        assert!(read == bytes);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn beyond_the_cap_the_beginning_is_kept_and_nothing_read_is_wrong(
            len in 0usize..200_000, part in 1usize..5_000,
        ) {
            let cap = 300_000;
            let (_folder, mut writer, reader) = files(cap);
            let bytes: Vec<u8> = (0..251).cycle().take(len * 3).collect();
            bytes.chunks(part).for_each(|part| writer.append(part));
            let read = all(&reader, writer.total());
            prop_assert_eq!(read.len(), bytes.len());
            for (at, (read, byte)) in read.iter().zip(&bytes).enumerate() {
                prop_assert!(read.is_none_or(|read| read == *byte), "byte {}", at);
                prop_assert!(read.is_some() || at as u64 >= cap / 2);
            }
        }
    }
}

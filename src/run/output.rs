//! A task's output in a capped file, addressed by byte offset.
//!
//! The first half of the cap is the beginning of the output, for ever; the second half is a ring
//! that holds its end. What lies between is dropped, and a reader is told exactly which bytes. The
//! writer never waits for a reader: it may be slow, many, or gone. So before it writes over bytes
//! of an earlier round it says so in a [`Mark`] behind the ring, and a reader looks there after it
//! has read: what it took is either right, or known not to be.

mod salvage;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

pub(super) use self::salvage::salvage;
use super::folder::{open_again, open_read};

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

/// Reads of a mark that is being written, before its reader takes all that it wants for lost.
const MARK_READS_MAX: usize = 100;

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

    /// Where the ring ends, as a position and as the first offset that goes over another one.
    fn end(self) -> u64 {
        self.head + self.ring
    }

    /// The first offset at or after `offset` that is still kept.
    fn kept_from(self, offset: u64, total: u64) -> u64 {
        let ring_starts = total.saturating_sub(self.ring).max(self.head);
        if offset < self.head || offset >= ring_starts { offset } else { ring_starts }
    }
}

/// What the writer tells all readers, with or without a daemon between them. There is none, and the
/// file is just the output, until a byte has to go over another one or could not be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// No byte at or beyond this offset has been written, nor has writing one begun.
    claimed: u64,
    /// Bytes that were lost, by a full disk for instance, lie from this offset ...
    lost_from: u64,
    /// ... up to here.
    lost_to: u64,
}

impl Mark {
    const LEN: usize = 32;

    /// With a check, since a reader may come in the middle of a write.
    fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (place, value) in bytes.chunks_exact_mut(8).zip(self.values()) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn values(self) -> [u64; 4] {
        let Self { claimed, lost_from, lost_to } = self;
        let check = claimed.rotate_left(1) ^ lost_from.rotate_left(2) ^ lost_to.rotate_left(3);
        [claimed, lost_from, lost_to, !check]
    }

    fn decode(bytes: [u8; Self::LEN]) -> Option<Self> {
        let mut values = bytes.chunks_exact(8).map(|part| {
            part.iter().rev().fold(0, |value: u64, byte| value << 8 | u64::from(*byte))
        });
        let mut next = || values.next().unwrap_or_default();
        let mark = Self { claimed: next(), lost_from: next(), lost_to: next() };
        (mark.encode() == bytes).then_some(mark)
    }

    /// Adds a range of lost bytes. There is only one: what lies between two of them is lost too.
    fn lose(&mut self, from: u64, to: u64) {
        self.lost_from = if self.lost_to == 0 { from } else { self.lost_from.min(from) };
        self.lost_to = self.lost_to.max(to);
    }
}

/// The writing end.
#[derive(Debug)]
pub(super) struct OutputWriter {
    file: File,
    layout: Layout,
    total: u64,
    mark: Mark,
    /// Whether the file has the mark as it is here.
    marked: bool,
}

impl OutputWriter {
    /// A new, empty file.
    pub(super) fn create(folder: &Path, which: Which, cap: u64) -> io::Result<Self> {
        let file = open_again(&folder.join(which.file()))?;
        Ok(Self { file, layout: Layout::new(cap), total: 0, mark: Mark::default(), marked: true })
    }

    /// How many bytes there were in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Appends bytes. A full disk loses them, not the task: they count as written, and a reader is
    /// told that they are not there.
    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        let end = self.total + bytes.len() as u64;
        if end > self.layout.end() {
            self.mark.claimed = end;
            self.marked = false;
        }
        if !self.publish() && self.mark.claimed > 0 {
            // Readers would take these bytes for those that they go over.
            self.mark.lose(self.total, end);
            self.total = end;
            return;
        }
        while !bytes.is_empty() {
            let (at, room) = self.layout.locate(self.total);
            let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let next = self.total + len as u64;
            // Whether the disk is full is the node's to notice; this task goes on.
            if self.file.write_all_at(&bytes[..len], at).is_err() {
                self.mark.lose(self.total, next);
                self.marked = false;
            }
            self.total = next;
            bytes = &bytes[len..];
        }
        self.publish();
    }

    /// Writes the mark if it has changed. False if that fails; the next append tries again.
    fn publish(&mut self) -> bool {
        self.marked =
            self.marked || self.file.write_all_at(&self.mark.encode(), self.layout.end()).is_ok();
        self.marked
    }
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// So many bytes.
    Data(usize),
    /// Nothing yet: there are no bytes at that offset so far.
    Empty,
    /// The bytes up to this offset are not kept.
    Gap(u64),
    /// They are not kept any more: later ones have taken their place, and more may be about to.
    Overtaken(u64),
}

/// The reading end of one output. Any number of them, with or without a keeper.
#[derive(Debug)]
pub struct OutputReader {
    file: Option<File>,
    layout: Layout,
}

impl OutputReader {
    pub(super) fn open(folder: &Path, which: Which, cap: u64) -> io::Result<Self> {
        let file = match open_read(&folder.join(which.file())) {
            Ok(file) => Some(file),
            // Its daemon was killed before the keeper had made it: nothing was ever written.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { file, layout: Layout::new(cap) })
    }

    /// Reads what fits into the buffer from `offset` on, of the `total` that there were just now.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, offset: u64, total: u64, buffer: &mut [u8]) -> io::Result<Chunk> {
        if offset >= total {
            return Ok(Chunk::Empty);
        }
        let kept = self.layout.kept_from(offset, total);
        if kept > offset {
            return Ok(Chunk::Overtaken(kept));
        }
        let (at, room) = self.layout.locate(offset);
        let len = usize::try_from(room.min(total - offset)).unwrap_or(usize::MAX);
        let len = len.min(buffer.len());
        let mut filled = self.fill(&mut buffer[..len], at)?;
        // Only now: the ring may have come round while it was read.
        let Some(mark) = self.mark()? else { return Ok(Chunk::Gap(total)) };
        let kept = self.layout.kept_from(offset, mark.claimed);
        if kept > offset {
            return Ok(Chunk::Overtaken(kept.min(total)));
        }
        if (mark.lost_from..mark.lost_to).contains(&offset) {
            return Ok(Chunk::Gap(mark.lost_to.min(total)));
        }
        if mark.lost_from > offset && mark.lost_to > 0 {
            let good = usize::try_from(mark.lost_from - offset).unwrap_or(usize::MAX);
            filled = filled.min(good);
        }
        if filled == 0 {
            // Not even the mark could be written.
            return Ok(Chunk::Gap(total));
        }
        Ok(Chunk::Data(filled))
    }

    fn fill(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.as_ref().map_or(Ok(0), |file| read_up_to(file, buffer, at))
    }

    /// What the writer says, or nothing if it never stands still.
    fn mark(&self) -> io::Result<Option<Mark>> {
        for _ in 0..MARK_READS_MAX {
            let mut bytes = [0; Mark::LEN];
            let len = self.fill(&mut bytes, self.layout.end())?;
            if len == 0 {
                return Ok(Some(Mark::default()));
            }
            if let Some(mark) = Mark::decode(bytes) {
                return Ok(Some(mark));
            }
        }
        Ok(None)
    }
}

/// Fills the buffer as far as the file goes.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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
            let mut buffer = [0; 7];
            match reader.read(read.len() as u64, total, &mut buffer).unwrap() {
                Chunk::Data(len) => read.extend(buffer[..len].iter().copied().map(Some)),
                Chunk::Gap(to) | Chunk::Overtaken(to) => {
                    read.resize(usize::try_from(to).unwrap(), None);
                }
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

    /// What stands at an offset says which offset it is, so that no byte can pass for another.
    fn word(offset: u64) -> [u8; 8] {
        (offset / 8).to_le_bytes()
    }

    #[test]
    fn a_reader_beside_a_writer_that_goes_round_never_gets_bytes_of_another_round() {
        let (_folder, mut writer, reader) = files(2048);
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let total = &total;
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let part: Vec<u8> = (0..32).flat_map(|at| word(round * 256 + at * 8)).collect();
                    writer.append(&part);
                    // As a daemon's does, what is known of the total lags behind.
                    if round % 16 == 15 {
                        total.store(writer.total(), Ordering::Release);
                    }
                }
                total.store(u64::MAX, Ordering::Release);
            });
            let (mut offset, mut gaps, mut buffer) = (0, 0u64, [0; 512]);
            loop {
                let known = total.load(Ordering::Acquire);
                if known == u64::MAX {
                    break;
                }
                match reader.read(offset, known, &mut buffer).unwrap() {
                    Chunk::Empty => std::hint::spin_loop(),
                    Chunk::Gap(to) | Chunk::Overtaken(to) => {
                        assert!(to > offset, "a gap goes forward");
                        (offset, gaps) = (to, gaps + 1);
                    }
                    Chunk::Data(len) => {
                        for part in buffer[..len].chunks_exact(8) {
                            assert_eq!(*part, word(offset), "at offset {offset}, {gaps} gaps");
                            offset += 8;
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn bytes_that_could_not_be_written_are_a_gap_and_not_zeros() {
        let (folder, mut writer, reader) = files(4096);
        writer.append(b"before");
        // A file that cannot be written stands for a full disk.
        let good = std::mem::replace(
            &mut writer.file,
            File::open(folder.path().join(Which::Stdout.file())).unwrap(),
        );
        writer.append(b"lost");
        writer.file = good;
        writer.append(b"after");
        let total = writer.total();
        let mut buffer = [0; 100];
        assert_eq!(reader.read(0, total, &mut buffer).unwrap(), Chunk::Data(6));
        assert_eq!(&buffer[..6], b"before");
        assert_eq!(reader.read(6, total, &mut buffer).unwrap(), Chunk::Gap(10));
        assert_eq!(reader.read(10, total, &mut buffer).unwrap(), Chunk::Data(5));
        assert_eq!(&buffer[..5], b"after");
    }

    #[test]
    fn a_mark_is_told_from_half_a_mark() {
        let mark = Mark { claimed: 77, lost_from: 1 << 40, lost_to: u64::MAX };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(bytes), Some(mark));
        let old = Mark { claimed: 76, ..mark }.encode();
        let half = std::array::from_fn(|at| if at < 16 { old[at] } else { bytes[at] });
        assert_eq!(Mark::decode(half), None);
        assert_eq!(Mark::decode([0; Mark::LEN]), None);
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

//! How much output there is of a task whose keeper was killed before it could say.

use std::path::Path;

use super::{Mark, OutputReader, Which};
use crate::run::folder::{About, load_about};
use crate::run::keeper::WRITE_MAX;
use crate::run::protocol::Totals;

/// As much of a task's outputs as is certain to have been written.
pub(in crate::run) fn salvage(folder: &Path) -> Totals {
    let Ok(About { output_max, .. }) = load_about(folder) else {
        return Totals::default();
    };
    let total = |which| {
        let opened = OutputReader::open(folder, which, output_max);
        opened.map_or(0, |reader| reader.salvaged())
    };
    Totals { stdout: total(Which::Stdout), stderr: total(Which::Stderr) }
}

impl OutputReader {
    /// The offset up to which bytes were written, or are known to be lost.
    fn salvaged(&self) -> u64 {
        let Ok(Some(mark)) = self.mark() else { return 0 };
        match mark {
            // No byte has gone over another, and none was lost: the file is the output.
            Mark { claimed: 0, lost_to: 0, .. } => {
                let len = self.file.as_ref().and_then(|file| file.metadata().ok());
                len.map_or(0, |found| found.len().min(self.layout.end()))
            }
            // What was written after that cannot be told from what was not.
            Mark { claimed: 0, lost_to, .. } => lost_to,
            // The last piece may not have been written, not all of it.
            Mark { claimed, lost_to, .. } => claimed.saturating_sub(WRITE_MAX as u64).max(lost_to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::folder::{ABOUT, boot, save};
    use crate::run::output::{Chunk, OutputWriter};

    #[test]
    fn output_is_found_without_a_word_of_the_keeper() {
        const CAP: u64 = 4 * WRITE_MAX as u64;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(salvage(path), Totals::default());
        let about = About { about: Vec::new().into(), output_max: CAP, boot: boot() };
        save(&path.join(ABOUT), &about).unwrap();
        assert_eq!(salvage(path), Totals::default());
        let mut out = OutputWriter::create(path, Which::Stdout, CAP).unwrap();
        let mut err = OutputWriter::create(path, Which::Stderr, CAP).unwrap();
        err.append(b"oh");
        out.append(&[1; 1_000]);
        assert_eq!(salvage(path), Totals { stdout: 1_000, stderr: 2 });
        while out.total() < 2 * CAP {
            out.append(&[2; WRITE_MAX]);
        }
        let Totals { stdout, .. } = salvage(path);
        assert_eq!(stdout, out.total() - WRITE_MAX as u64);
        let reader = OutputReader::open(path, Which::Stdout, CAP).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(reader.read(stdout - 8, stdout, &mut buffer).unwrap(), Chunk::Data(8));
        assert_eq!(buffer, [2; 8]);
    }
}

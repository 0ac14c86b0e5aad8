//! What happened, one line for each event, in fixed columns: time, machine, kind, the rest.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};

use gpuvine::core::time::Instant;

/// Lines kept for the end of a run that fails.
const LAST_MAX: usize = 60;

/// Where the lines go.
#[derive(Debug)]
pub struct Trace {
    keep: bool,
    hash: DefaultHasher,
    lines: Vec<String>,
    count: u64,
}

impl Trace {
    /// A trace whose lines are kept, or only counted and hashed: the hash of all lines is what
    /// makes two runs the same.
    pub(crate) fn new(keep: bool) -> Self {
        Self { keep, hash: DefaultHasher::new(), lines: Vec::new(), count: 0 }
    }

    /// One line.
    pub(crate) fn line(
        &mut self,
        now: Instant,
        machine: usize,
        kind: &str,
        rest: fmt::Arguments<'_>,
    ) {
        self.count += 1;
        if self.keep {
            let line = format!("{:>12}  n{machine:<3} {kind:<10} {rest}", now.to_string());
            self.hash.write(line.as_bytes());
            self.lines.push(line);
        } else {
            self.hash.write_u64(now.as_nanos());
            self.hash.write_usize(machine);
            self.hash.write(kind.as_bytes());
        }
    }

    /// All lines that were kept.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The last lines that were kept.
    pub fn last(&self) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(LAST_MAX)..]
    }

    /// What tells two runs apart.
    pub fn digest(&self) -> u64 {
        self.hash.finish()
    }

    /// How many lines there were.
    pub fn count(&self) -> u64 {
        self.count
    }
}

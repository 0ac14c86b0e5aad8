//! The only place that prints: data to standard output, talk to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{Table, presets};
use serde::Serialize;

use super::args::Globals;
use super::exit::{Exit, Failure};
use crate::api::ErrorBody;

/// Prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    json: bool,
    color: bool,
    verbose: u8,
}

impl Printer {
    pub(crate) fn new(globals: &Globals) -> Self {
        let color = globals.color.on(&io::stdout());
        Self { json: globals.json, color, verbose: globals.verbose }
    }

    /// Whether programs read this.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether a person reads standard output.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// How much is told.
    pub(crate) fn verbose(&self) -> u8 {
        self.verbose
    }

    /// Prints a value: for programs as it is, for people by `words`.
    pub(crate) fn value<T: Serialize>(
        &self,
        value: &T,
        words: impl FnOnce(&T) -> String,
    ) -> Result<Exit, Failure> {
        let text = match self.json {
            true => serde_json::to_string_pretty(value).map_err(io::Error::other)?,
            false => words(value),
        };
        self.line(&text)
    }

    /// Prints a line of data. A reader who has gone is success.
    pub(crate) fn line(&self, text: &str) -> Result<Exit, Failure> {
        let mut out = io::stdout().lock();
        match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
            other => Ok(other.map(|()| Exit::Done)?),
        }
    }

    /// Says something, in one line, to the person at the terminal. Names and reasons in it may come
    /// from other nodes, so that it is cleaned here and nowhere else.
    pub(crate) fn say(&self, text: &str) {
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "gpuvine: {}", clean(text));
    }

    /// Tells why it failed: a line, and what to do. For programs the same as JSON on standard
    /// output.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        if self.json && failure.exit != Exit::Usage {
            let body = ErrorBody { error: failure.error.clone() };
            let _ = self.value(&body, |_| String::new());
            return failure.exit;
        }
        self.tell(failure);
        failure.exit
    }

    /// Tells people why something failed, on standard error.
    pub(crate) fn tell(&self, failure: &Failure) {
        self.say(&failure.error.message);
        for hint in &failure.error.hints {
            let _ = writeln!(io::stderr(), "hint: {}", clean(hint));
        }
    }

    /// A table; the header is all that colour is used for.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<String>>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().copied());
        for row in rows {
            table.add_row(row.iter().map(|cell| clean(cell)));
        }
        let text = table.trim_fmt();
        // Columns stand one blank apart on both sides; the first needs none.
        let flush = |line: &'_ str| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned();
        let trimmed: Vec<String> = text.lines().map(flush).collect();
        match (self.color, trimmed.split_first()) {
            (true, Some((head, rest))) => format!("\x1b[1m{head}\x1b[0m\n{}", rest.join("\n")),
            _ => trimmed.join("\n"),
        }
    }
}

/// A foreign text for a terminal: without escapes, line breaks, and what turns the direction of
/// reading, by which one name can be made to look like another.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a character turns the direction of reading or ends a line.
fn turns(c: char) -> bool {
    let marks = '\u{200e}'..='\u{200f}';
    let lines_and_turns = '\u{2028}'..='\u{202e}';
    let isolates = '\u{2066}'..='\u{2069}';
    marks.contains(&c) || lines_and_turns.contains(&c) || isolates.contains(&c)
}

/// How long ago a time was, as people say it. Times in the future are now.
pub(crate) fn ago(time: Option<&str>, now: u64) -> String {
    let at = time.and_then(|time| humantime::parse_rfc3339(time).ok());
    let at = at.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    match at.map(|at| now.saturating_sub(at.as_secs())) {
        None => String::new(),
        Some(seconds @ 0..120) => format!("{seconds}s"),
        Some(seconds @ 120..7_200) => format!("{}m", seconds / 60),
        Some(seconds @ 7_200..172_800) => format!("{}h", seconds / 3_600),
        Some(seconds) => format!("{}d", seconds / 86_400),
    }
}

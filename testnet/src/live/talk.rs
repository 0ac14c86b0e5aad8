//! What the demo says while it plays: to a person, on standard error.

use std::io::{IsTerminal as _, Write as _};

/// The narrator.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    quiet: bool,
    colour: bool,
}

impl Talk {
    /// Tells everything, or with `quiet` nothing. Colour only on a terminal that wants it.
    pub fn new(quiet: bool) -> Self {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { quiet, colour }
    }

    /// A new chapter.
    pub fn title(&self, text: &str) {
        match self.colour {
            true => self.line(&format!("\n\x1b[1m{text}\x1b[0m")),
            false => self.line(&format!("\n{text}")),
        }
    }

    /// What is being done.
    pub fn step(&self, text: &str) {
        self.line(&format!("  > {text}"));
    }

    /// What came of it.
    pub fn done(&self, text: &str) {
        match self.colour {
            true => self.line(&format!("  \x1b[32m✓\x1b[0m {text}")),
            false => self.line(&format!("  ✓ {text}")),
        }
    }

    /// What a command printed.
    pub fn show(&self, output: &str) {
        for line in output.lines() {
            self.line(&format!("      {line}"));
        }
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            // Nobody may be listening, and the demo plays on.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

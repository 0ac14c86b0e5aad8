//! The house rules, executed. Each test is one rule; its failures name file, line and reason.
//!
//! Rules that clippy can hold are held there (`Cargo.toml`, `.clippy.toml`); these are the others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file: its path from the root of the project, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Lines that are code: no comments, numbered from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = (1..).zip(self.text.lines());
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.starts_with("tests/")
    }

    /// Lines before the tests at the end of a file.
    fn logic(&self) -> usize {
        let tests = self.text.lines().position(|line| line.starts_with("#[cfg(test)]"));
        // `#[cfg(test)] mod tests;` near the top is a file of its own.
        let ends = tests.filter(|at| {
            self.text.lines().nth(at + 1).is_some_and(|line| line.trim_end().ends_with('{'))
        });
        ends.unwrap_or_else(|| self.text.lines().count())
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "tests", "testnet"].map(|dir| root.join(dir)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push(Source { path: name, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    assert!(found.len() > 50, "the sources are found");
    found
}

/// Applies a rule to every file and shows all that break it.
fn enforce(reason: &str, rule: impl Fn(&Source) -> Vec<usize>) {
    let mut broken = String::new();
    for source in sources() {
        for line in rule(&source) {
            writeln!(broken, "  {}:{line}", source.path).unwrap();
        }
    }
    assert!(broken.is_empty(), "{reason}:\n{broken}");
}

/// Lines of code that contain one of these words.
fn lines_with(source: &Source, words: &[&str]) -> Vec<usize> {
    let hits = |line: &str| words.iter().any(|word| line.contains(word));
    source.code().filter(|(_, line)| hits(line)).map(|(number, _)| number).collect()
}

/// What each part of the crate may not name.
const WALLS: [(&str, &[&str]); 11] = [
    (
        "src/core",
        &["api", "auth", "cli", "clock", "config", "daemon", "gpu", "net", "run", "store", "wire"],
    ),
    (
        "src/wire",
        &["api", "auth", "cli", "clock", "config", "daemon", "gpu", "net", "run", "store"],
    ),
    ("src/auth", &["api", "cli", "clock", "config", "daemon", "gpu", "net", "run", "store"]),
    (
        "src/api",
        &["auth", "cli", "clock", "config", "daemon", "gpu", "net", "run", "store", "wire"],
    ),
    (
        "src/config",
        &["api", "auth", "cli", "clock", "daemon", "gpu", "net", "run", "store", "wire"],
    ),
    ("src/gpu", &["api", "auth", "cli", "config", "daemon", "net", "run", "store"]),
    ("src/net", &["api", "cli", "config", "daemon", "gpu", "run", "store"]),
    ("src/run", &["api", "cli", "config", "daemon", "gpu", "net", "store"]),
    ("src/store", &["api", "cli", "config", "daemon", "gpu", "net", "run"]),
    ("src/daemon", &["cli"]),
    ("src/cli", &["gpu", "net", "run", "store", "wire"]),
];

fn over_the_wall(source: &Source) -> Vec<usize> {
    let inside = |room: &str| {
        source.path == format!("{room}.rs") || source.path.starts_with(&format!("{room}/"))
    };
    let Some((_, forbidden)) = WALLS.iter().find(|(room, _)| inside(room)) else {
        return Vec::new();
    };
    let words: Vec<String> = forbidden.iter().map(|room| format!("crate::{room}::")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lines_with(source, &words)
}

#[test]
fn nobody_imports_over_a_wall() {
    enforce("see the import table in ARCHITECTURE.md", over_the_wall);
}

#[test]
fn the_wall_is_seen_when_it_is_climbed() {
    let bad = Source::new("src/core/election.rs", "//! x\nuse crate::net::Handle;\n");
    assert_eq!(over_the_wall(&bad), [2]);
    let good = Source::new("src/daemon/driver.rs", "use crate::net::Handle;\n");
    assert!(over_the_wall(&good).is_empty());
}

fn impure(source: &Source) -> Vec<usize> {
    if !source.path.starts_with("src/core") {
        return Vec::new();
    }
    lines_with(
        source,
        &[
            "tokio",
            "libp2p",
            "std::net",
            "std::fs",
            "std::thread",
            "std::env",
            "std::process",
            "std::time::Instant",
            "SystemTime",
            "HashMap",
            "HashSet",
            "rand::rng(",
            "thread_rng",
        ],
    )
}

#[test]
fn the_core_is_pure() {
    enforce("nothing in src/core touches the world or depends on hashes' order", impure);
    let bad = Source::new("src/core/x.rs", "use std::collections::HashMap;\n");
    assert_eq!(impure(&bad), [1]);
}

#[test]
fn only_the_command_line_starts_and_founds_daemons() {
    enforce("cli speaks over the API, except where there is no daemon yet", |source| {
        let may = ["src/cli/up.rs", "src/cli/init.rs", "src/cli/invite.rs"];
        if !source.path.starts_with("src/cli") || may.contains(&source.path.as_str()) {
            return Vec::new();
        }
        lines_with(source, &["crate::daemon"])
    });
}

#[test]
fn every_file_says_what_it_is_for() {
    enforce("a file begins with `//!` and a sentence", |source| {
        if source.text.starts_with("//! ") { Vec::new() } else { vec![1] }
    });
}

#[test]
fn rooms_are_small() {
    enforce(
        "logic files have 500 lines at most, test files 800, main.rs and lib.rs 100",
        |source| {
            let top = source.path == "src/main.rs" || source.path == "src/lib.rs";
            let (lines, most) = match (top, source.is_test()) {
                (true, _) => (source.text.lines().count(), 100),
                (_, true) => (source.text.lines().count(), 800),
                _ => (source.logic(), 500),
            };
            if lines > most { vec![lines] } else { Vec::new() }
        },
    );
}

#[test]
fn folders_have_names_and_no_mod_rs_and_no_drawers() {
    let drawers = ["mod", "utils", "helpers", "common", "misc", "manager", "types"];
    enforce("foo.rs beside foo/, and every file is about something", |source| {
        let stem = Path::new(&source.path).file_stem().and_then(|stem| stem.to_str());
        if stem.is_some_and(|stem| drawers.contains(&stem)) { vec![1] } else { Vec::new() }
    });
}

#[test]
fn nothing_is_left_to_be_done() {
    let words = ["TO", "FIX", "XX"].map(|head| match head {
        "TO" => "TODO".to_owned(),
        "FIX" => "FIXME".to_owned(),
        other => format!("{other}X"),
    });
    enforce("what is to be done is an issue, not a comment", |source| {
        let hits = |line: &str| words.iter().any(|word| line.contains(word.as_str()));
        let here = source.path == "tests/tidy.rs";
        let lines = (1..).zip(source.text.lines());
        lines.filter(|(_, line)| hits(line) && !here).map(|(number, _)| number).collect()
    });
}

/// Where unsafe code may be, and the only thing that it may be for.
const UNSAFE: [&str; 2] = [
    // There is no safe fork; this process has no threads.
    "src/run/keeper/server.rs",
    // This file names the word.
    "tests/tidy.rs",
];

#[test]
fn unsafe_code_has_its_place() {
    enforce("unsafe code has one place; another needs a reason as good", |source| {
        if UNSAFE.contains(&source.path.as_str()) {
            return Vec::new();
        }
        lines_with(source, &["unsafe {", "unsafe fn", "unsafe impl"])
    });
}

/// Tests wait for events, with a deadline; these sleep for another reason.
const MAY_SLEEP: [&str; 4] = [
    // A benchmark that watches a mesh doing nothing.
    "testnet/src/live/bench/idle.rs",
    // A user whose daemon is being started again, and whom nobody tells when it is.
    "testnet/src/live/load.rs",
    // A fault that lasts for a while is the time itself.
    "tests/it/faults.rs",
    // This file names the word.
    "tests/tidy.rs",
];

#[test]
fn no_test_sleeps() {
    enforce("wait for the event, with a deadline", |source| {
        let concerned = source.is_test() || source.path.starts_with("testnet");
        if !concerned || MAY_SLEEP.contains(&source.path.as_str()) {
            return Vec::new();
        }
        lines_with(source, &["time::sleep(", "thread::sleep("])
    });
}

#[test]
fn lines_are_short_enough_to_read() {
    // A string cannot always be broken; rustfmt leaves such lines alone.
    enforce("at most 100 columns", |source| {
        let long = |line: &str| line.chars().count() > 100 && !line.contains('"');
        let lines = (1..).zip(source.text.lines());
        lines.filter(|(_, line)| long(line)).map(|(number, _)| number).collect()
    });
}

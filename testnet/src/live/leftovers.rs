//! Ends every process that belongs to a folder: what a demo or a test must never leave behind.
//!
//! A daemon's tasks outlive it on purpose, so killing daemons is not enough. Processes are found in
//! `/proc` by what ties them to the folder: an argument, the executable's folder of a keeper, or
//! the current directory; and all their descendants. Users' calls of `gpuvine` are spared: they
//! end by themselves when their daemon and its folder are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Looks taken at `/proc`: a process can fork while it is being looked at.
const ROUNDS: usize = 5;

/// Kills every process that belongs to `root`, and its descendants; this process is spared.
pub fn end_leftovers(root: &Path) {
    for _ in 0..ROUNDS {
        let found = belonging(root);
        if found.is_empty() {
            return;
        }
        for pid in found {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// The processes that belong to `root`.
pub fn belonging(root: &Path) -> BTreeSet<u32> {
    let me = std::process::id();
    let mut parents = BTreeMap::new();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some((parent, zombie)) = parent(pid) else { continue };
        if zombie || pid == me {
            continue;
        }
        parents.insert(pid, parent);
        if belongs(&entry.path(), root) {
            found.insert(pid);
        }
    }
    // Descendants, however deep; each round finds one more generation.
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn belongs(proc: &Path, root: &Path) -> bool {
    let root = root.as_os_str().as_bytes();
    let command = fs::read(proc.join("cmdline")).unwrap_or_default();
    let named = command.windows(root.len()).any(|part| part == root) && !is_user(&command, root);
    let inside = fs::read_link(proc.join("cwd"))
        .is_ok_and(|cwd| cwd.as_os_str().as_bytes().starts_with(root));
    // The shell that runs the demo may stand in the folder; its own children are what counts.
    named || inside
}

/// Whether a command line is a user's call of `gpuvine`, not a daemon's: it is told by the end of
/// its daemon, in words, and ends by itself.
fn is_user(command: &[u8], root: &[u8]) -> bool {
    let mut words = command.split(|byte| *byte == 0).take_while(|word| word != b"--");
    let names_node = words.by_ref().any(|word| word == b"--dir")
        && words.next().is_some_and(|folder| folder.starts_with(root));
    names_node && words.all(|word| word != b"up")
}

/// A process's parent, and whether it is a zombie; `None` if it is gone.
fn parent(pid: u32) -> Option<(u32, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may contain anything: fields are counted from its end.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, state == "Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_call_is_told_from_a_daemon_and_its_keepers() {
        let root = b"/tmp/gpuvine-x";
        let is_user = |line: &str| is_user(line.replace(' ', "\0").as_bytes(), root);
        assert!(is_user("testnet __gpuvine --dir /tmp/gpuvine-x/n1 run -G 1 -- up"));
        assert!(is_user("gpuvine --dir /tmp/gpuvine-x/n1 logs -f 3f9k"));
        for other in [
            "testnet __gpuvine --dir /tmp/gpuvine-x/n1 --json up --name n1",
            "gpuvine __keeper /tmp/gpuvine-x/n1/tasks",
            "gpuvine --dir /tmp/other run -- cat /tmp/gpuvine-x/n1",
        ] {
            assert!(!is_user(other), "{other}");
        }
    }
}

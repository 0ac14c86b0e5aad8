//! Which processes belong to a task, and how they are ended.
//!
//! Two ways to know: a keeper finds the descendants of its own process (orphans come to it, for it
//! is a subreaper), and a daemon whose keeper is gone finds processes by the task's name in their
//! environment. A process id alone never names anybody: ids are used again.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks every process of a task.
pub(super) const MARK: &str = "GPUVINE_TASK";

/// All descendants of a process that live.
pub(super) fn descendants(of: u32) -> Vec<Pid> {
    let mut children: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for pid in all() {
        if let Some((parent, lives)) = parent(pid) {
            children.entry(parent).or_default().push((pid, lives));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        for (pid, lives) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if lives {
                found.extend(to_pid(pid));
            }
        }
    }
    found
}

/// All processes that carry a task's mark.
pub(super) fn marked(task: &str) -> Vec<Pid> {
    let mark = format!("{MARK}={task}").into_bytes();
    all()
        .into_iter()
        .filter(|pid| {
            let environ = environ(*pid);
            environ.split(|byte| *byte == 0).any(|entry| entry == mark)
                && parent(*pid).is_some_and(|(_, lives)| lives)
        })
        .filter_map(to_pid)
        .collect()
}

/// Sends a signal to each. One that is gone has got what was wanted.
pub(super) fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

/// Every process id that there is.
fn all() -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process's environment; from another thread if the first has ended.
fn environ(pid: u32) -> Vec<u8> {
    let of = |tid: &u32| fs::read(format!("/proc/{pid}/task/{tid}/environ")).unwrap_or_default();
    match of(&pid) {
        none if none.is_empty() => threads(pid).iter().map(of).find(|some| !some.is_empty()),
        some => Some(some),
    }
    .unwrap_or_default()
}

/// The threads of a process, the first among them also when it has ended.
fn threads(pid: u32) -> Vec<u32> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process's parent, and whether it lives: it is no zombie, or one only in its first thread.
fn parent(pid: u32) -> Option<(u32, bool)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may contain anything: fields are counted from its end.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let lives = !matches!(fields.next()?, "Z" | "X") || threads(pid).len() > 1;
    Some((fields.next()?.parse().ok()?, lives))
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

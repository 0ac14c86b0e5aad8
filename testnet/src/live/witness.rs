//! Who saw what ran: an independent look at tasks under load and faults.
//!
//! It knows nothing of gpuvine's own state. Tasks write down their place, their start and their end
//! in a folder of the test, by one kernel's clock, and `/proc` says who still lives.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// The variable by which tasks find the journal, and by which they are found.
const VARIABLE: &str = "GPUVINE_WITNESS";

/// What a task does: one folder for each attempt; `twice` if there was one already.
const SCRIPT: &str = r#"
f="$GPUVINE_WITNESS/$GPUVINE_JOB_NAME.$GPUVINE_ATTEMPT"
mkdir "$f" || exec mkdir "$f.twice"
echo "$GPUVINE_NODE $GPUVINE_GPUS" > "$f/place"
date +%s%N > "$f/start"
sleep "$1"
date +%s%N > "$f/end"
"#;

/// A folder in which tasks keep a journal.
#[derive(Clone, Debug)]
pub struct Witness {
    folder: PathBuf,
}

/// One attempt of a job, as it wrote it down itself.
#[derive(Debug)]
struct Attempt {
    job: String,
    place: String,
    start: u64,
    /// `None` while it runs, or if it was killed.
    end: Option<u64>,
}

/// How `gpuvine run` ended for one job.
#[derive(Clone, Debug)]
pub struct Told {
    /// The job's name.
    pub job: String,
    /// The exit code.
    pub code: Option<i32>,
    /// What was said on standard error.
    pub stderr: String,
}

impl Witness {
    /// A journal in a new folder under `root`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(root: &Path) -> Result<Self> {
        let folder = root.join("witness");
        fs::create_dir(&folder)?;
        Ok(Self { folder })
    }

    /// The arguments of `gpuvine` that run a witnessed task for this many seconds.
    pub fn run(&self, name: &str, seconds: f64) -> Vec<String> {
        let variable = format!("{VARIABLE}={}", self.folder.display());
        let seconds = seconds.to_string();
        let words = ["run", "-q", "--name", name, "-e", &variable, "--", "sh", "-c", SCRIPT, "sh"];
        words.iter().copied().chain([seconds.as_str()]).map(str::to_owned).collect()
    }

    /// Whether an attempt of the job has begun.
    pub fn has_begun(&self, name: &str) -> bool {
        self.folder.join(format!("{name}.1/start")).exists()
    }

    /// Processes of witnessed tasks that are alive.
    pub fn living(&self) -> Vec<u32> {
        let wanted = format!("{VARIABLE}={}", self.folder.display()).into_bytes();
        let named = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        };
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(named).collect()
    }

    /// Compares what users were told with what the tasks wrote down: no job was begun twice, none
    /// that succeeded has not run to its end, and no GPU had two tasks at once. Answers how many
    /// tasks ran to their end.
    ///
    /// # Errors
    /// The first thing that must not be.
    pub fn judge(&self, told: &[Told]) -> Result<usize> {
        let attempts = self.attempts()?;
        let mut of_job: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
        let mut on_gpu: BTreeMap<String, Vec<&Attempt>> = BTreeMap::new();
        for attempt in &attempts {
            of_job.entry(&attempt.job).or_default().push(attempt);
            let (node, gpus) = attempt.place.split_once(' ').context("a node and its GPUs")?;
            for gpu in gpus.trim().split(',') {
                on_gpu.entry(format!("{node} {gpu}")).or_default().push(attempt);
            }
        }
        for (job, attempts) in &of_job {
            ensure!(attempts.len() == 1, "{job} was begun more than once: {attempts:?}");
        }
        for told in told.iter().filter(|told| told.code == Some(0)) {
            let ran = of_job.get(told.job.as_str()).and_then(|attempts| attempts[0].end);
            ensure!(ran.is_some(), "{} is said to have succeeded, and did not run", told.job);
        }
        for (gpu, attempts) in &mut on_gpu {
            attempts.sort_by_key(|attempt| attempt.start);
            for pair in attempts.windows(2) {
                // One that was killed did not write down when.
                let apart = pair[0].end.is_none_or(|end| end <= pair[1].start);
                ensure!(apart, "{gpu} had two tasks at once: {pair:?}");
            }
        }
        Ok(attempts.iter().filter(|attempt| attempt.end.is_some()).count())
    }

    fn attempts(&self) -> Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let folder = entry?.path();
            let name = String::from_utf8_lossy(folder.file_name().unwrap_or_default().as_bytes())
                .into_owned();
            if name.ends_with(".twice") {
                bail!("{name}: one attempt was started twice");
            }
            let job = name.rsplit_once('.').context("a job and its attempt")?.0.to_owned();
            let time = |file: &str| -> Option<u64> {
                fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
            };
            // Killed before it wrote down the first thing, it is not known where.
            let Some(start) = time("start") else { continue };
            let place = fs::read_to_string(folder.join("place"))?;
            attempts.push(Attempt { job, place, start, end: time("end") });
        }
        Ok(attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(witness: &Witness, name: &str, place: &str, start: u64, end: Option<u64>) {
        let folder = witness.folder.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("place"), place).unwrap();
        fs::write(folder.join("start"), start.to_string()).unwrap();
        if let Some(end) = end {
            fs::write(folder.join("end"), end.to_string()).unwrap();
        }
    }

    #[test]
    fn what_must_not_be_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let witness = Witness::new(root.path()).unwrap();
        let told = |job: &str| Told { job: job.into(), code: Some(0), stderr: String::new() };
        attempt(&witness, "a.1", "n1 gpu0\n", 10, Some(20));
        attempt(&witness, "b.1", "n1 gpu0,gpu1\n", 20, Some(30));
        attempt(&witness, "c.1", "n1 gpu1\n", 30, None);
        assert_eq!(witness.judge(&[told("a"), told("b")]).unwrap(), 2);
        let error = witness.judge(&[told("c")]).unwrap_err().to_string();
        assert!(error.contains("c is said to have succeeded"), "{error}");
        attempt(&witness, "d.1", "n1 gpu1\n", 25, Some(40));
        let error = witness.judge(&[]).unwrap_err().to_string();
        assert!(error.contains("n1 gpu1 had two tasks at once"), "{error}");
        attempt(&witness, "d.2", "n2 gpu1\n", 50, Some(60));
        let error = witness.judge(&[]).unwrap_err().to_string();
        assert!(error.contains("d was begun more than once"), "{error}");
    }
}

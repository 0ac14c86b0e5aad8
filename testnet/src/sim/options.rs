//! Everything that is drawn from one seed: the machines, the network, the faults, the work.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use gpuvine::core::time::Duration;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt as _, SeedableRng as _};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A daemon is killed and started again; its tasks live on.
    Kill,
    /// A machine loses power: tasks die, what was not synced is lost.
    Power,
    /// A daemon is stopped (SIGSTOP) and goes on later.
    Freeze,
    /// A machine is suspended, tasks and all, and wakes up later.
    Suspend,
    /// The mesh is split into two halves.
    Split,
    /// Nothing from one machine reaches another, but the other way.
    OneWay,
    /// One machine hears and reaches nobody.
    Isolate,
    /// Connections are reset.
    Reset,
    /// A link is a hundred times slower.
    Slow,
    /// Messages between cores are lost, doubled and reordered.
    Lossy,
    /// Gossip is lost.
    GossipLoss,
    /// Clocks run at different rates.
    Drift,
    /// Disks are slow.
    SlowDisk,
    /// GPUs vanish and come back.
    GpuLoss,
    /// Processes cannot be started now and then.
    NoStart,
    /// Processes ignore SIGTERM, leave children behind, or cannot be killed for a while.
    Stubborn,
    /// A daemon leaves as its operator wants, and comes back.
    Leave,
    /// Users cancel, in any state.
    Cancel,
    /// A machine starts from an old image of its disk.
    OldDisk,
    /// A machine's disk is copied to a second one, which starts beside it with the same identity.
    Clone,
    /// What was written last before a crash is there in part: a commit's fence without its
    /// records, a task's files that power loss has emptied.
    Torn,
    /// A machine vanishes for good, with its jobs and its tasks.
    Vanish,
    /// Nodes keep the outcomes of hardly any task.
    Prune,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Kill,
        Self::Power,
        Self::Freeze,
        Self::Suspend,
        Self::Split,
        Self::OneWay,
        Self::Isolate,
        Self::Reset,
        Self::Slow,
        Self::Lossy,
        Self::GossipLoss,
        Self::Drift,
        Self::SlowDisk,
        Self::GpuLoss,
        Self::NoStart,
        Self::Stubborn,
        Self::Leave,
        Self::Cancel,
        Self::OldDisk,
        Self::Clone,
        Self::Torn,
        Self::Vanish,
        Self::Prune,
    ];

    /// Whether it lasts as long as there are faults, and does not strike now and then.
    pub(crate) fn lasts(self) -> bool {
        matches!(
            self,
            Self::Lossy
                | Self::GossipLoss
                | Self::Drift
                | Self::SlowDisk
                | Self::NoStart
                | Self::Stubborn
                | Self::Cancel
                | Self::Torn
                | Self::Prune
        )
    }

    fn name(self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }
}

/// Faults that may happen in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub BTreeSet<Fault>);

impl Faults {
    /// No faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Every fault there is.
    pub fn all() -> Self {
        Self(Fault::ALL.into())
    }

    /// Whether this one may happen.
    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::all()),
            "none" => return Ok(Self::none()),
            _ => {}
        }
        let one = |word: &str| {
            Fault::ALL.into_iter().find(|fault| fault.name() == word.trim()).ok_or_else(|| {
                let known: Vec<String> = Fault::ALL.into_iter().map(Fault::name).collect();
                format!("`{word}` is no fault; there are all, none, {}", known.join(", "))
            })
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<String> = self.0.iter().map(|fault| fault.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all chance comes from.
    pub seed: u64,
    /// GPUs of each machine.
    pub gpus: Vec<usize>,
    /// Jobs that users submit while there are faults.
    pub jobs: usize,
    /// For how long there are faults.
    pub chaos: Duration,
    /// How long everything may take to come right after the last fault.
    pub calm: Duration,
    /// What may go wrong.
    pub faults: Faults,
    /// Time between two faults, on average.
    pub fault_every: Duration,
    /// What a message takes at least.
    pub latency: Duration,
}

/// What a job takes at most of a GPU, with all that its processes do to stay alive.
const LONGEST_JOB: Duration = Duration::from_secs(60);

/// What the user fixes of a run; the seed decides the rest.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Machines.
    pub nodes: Option<usize>,
    /// GPUs in all.
    pub gpus: Option<usize>,
    /// Jobs.
    pub jobs: Option<usize>,
    /// For how long there are faults.
    pub chaos: Option<Duration>,
    /// What may go wrong.
    pub faults: Option<Faults>,
}

impl Options {
    /// What a seed means. Each seed has faults of its own, so that a kind that hides others is
    /// missing in some.
    pub fn draw(seed: u64, wishes: &Wishes) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let nodes = rng.random_range(3..=8);
        let nodes = wishes.nodes.unwrap_or(nodes).max(1);
        let mut gpus: Vec<usize> = (0..nodes)
            .map(|_| if rng.random_bool(0.3) { 0 } else { rng.random_range(1..=3) })
            .collect();
        gpus[0] = gpus[0].max(1);
        if let Some(wanted) = wishes.gpus {
            gpus = (0..nodes)
                .map(|node| wanted / nodes + usize::from(node < wanted % nodes))
                .collect();
        }
        let jobs = rng.random_range(10..=60);
        let chaos = Duration::from_secs(rng.random_range(20..=150));
        let share = rng.random_range(0.15..0.9);
        let mut drawn: BTreeSet<Fault> =
            Fault::ALL.into_iter().filter(|_| rng.random_bool(share)).collect();
        if drawn.contains(&Fault::Vanish) {
            // Of two that have lost each other's addresses, to a copy and with an old disk, neither
            // can find the other when the third has vanished: only people could tell them.
            drawn.retain(|fault| !matches!(fault, Fault::Clone | Fault::OldDisk));
        }
        // All the work there is may be waiting at the last fault.
        let all = u64::try_from(wishes.jobs.unwrap_or(jobs)).unwrap_or(u64::MAX);
        let share_of_one = all / gpus.iter().sum::<usize>().max(1) as u64;
        let calm = Duration::from_secs(240 + share_of_one.min(10_000) * LONGEST_JOB.as_secs());
        let latency = if rng.random_bool(0.7) { 200..2_000 } else { 10_000..80_000 };
        Self {
            seed,
            gpus,
            jobs: wishes.jobs.unwrap_or(jobs),
            chaos: wishes.chaos.unwrap_or(chaos),
            calm,
            faults: wishes.faults.clone().unwrap_or(Faults(drawn)),
            fault_every: Duration::from_millis(rng.random_range(500..8_000)),
            latency: Duration::from_micros(rng.random_range(latency)),
        }
    }

    /// A generator for one part of the run, so that a change in one does not change the others.
    pub(crate) fn rng(&self, part: u8) -> ChaCha12Rng {
        let mut seed = [part; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        ChaCha12Rng::from_seed(seed)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} nodes, {} GPUs, {} jobs, {} s, latency {:?}, faults {}",
            self.seed,
            self.gpus.len(),
            self.gpus.iter().sum::<usize>(),
            self.jobs,
            self.chaos.as_secs(),
            self.latency,
            self.faults
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_back_and_wrong_ones_are_named() {
        let faults: Faults = "kill,split".parse().unwrap();
        assert_eq!(faults.to_string().parse(), Ok(faults));
        assert!("flood".parse::<Faults>().unwrap_err().contains("`flood` is no fault"));
    }
}

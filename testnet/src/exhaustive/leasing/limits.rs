//! How far the model of leases goes. Within its limits it is complete.

use std::fmt;

/// The limits of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attempts of a job: what a home asks for a later one is lost.
    pub attempts: u64,
    /// Streams of a job: none can be opened after these.
    pub streams: u8,
    /// Streams of a job that cannot be opened although there is one left.
    pub unreachable: u8,
    /// Times that the timer of a home goes off, of both together.
    pub timers: u8,
    /// Crashes of the daemons of nodes.
    pub crashes: u8,
    /// Crashes of the daemons of homes.
    pub home_crashes: u8,
    /// Crashes of whole machines, with all tasks that run there.
    pub reboots: u8,
    /// Jobs that their users cancel.
    pub cancels: u8,
    /// Starts of tasks that fail, of all nodes together.
    pub failures: u8,
    /// Whether the second controller is heard of, by whom and when it may be; otherwise the first
    /// grants everything to everybody alone.
    pub rivals: bool,
    /// Whether both controllers have one term.
    pub one_term: bool,
    /// Whether what opens a stream may arrive again and again, as no transport of ours lets it.
    pub open_again: bool,
}

impl Limits {
    /// Whether nothing can come between a lease and its task.
    pub(super) fn starts_at_once(&self) -> bool {
        self.crashes + self.reboots + self.failures == 0
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempts and {} streams a job; ", self.attempts, self.streams)?;
        write!(f, "in all {} timers, {} unreachable, ", self.timers, self.unreachable)?;
        write!(f, "{} crashes of nodes, {} of homes, ", self.crashes, self.home_crashes)?;
        write!(f, "{} reboots, {} failed starts, ", self.reboots, self.failures)?;
        write!(f, "{} cancelled; ", self.cancels)?;
        f.write_str(match (self.rivals, self.one_term) {
            (false, _) => "one reign",
            (true, false) => "terms 1 and 2",
            (true, true) => "terms 1 and 1",
        })?;
        f.write_str(if self.open_again { "; streams open again and again" } else { "" })
    }
}

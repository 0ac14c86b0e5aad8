//! The core's notion of time: a point on a monotonic clock that somebody else reads.
//!
//! The daemon feeds nanoseconds of `CLOCK_BOOTTIME` (it counts suspend), the simulator feeds
//! virtual nanoseconds. Nothing in the core can read a clock; every machine is told `now`.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

pub use std::time::Duration;

/// A point in time: nanoseconds since an arbitrary zero. Only comparable within one run of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The arbitrary zero.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time (584 years) instead of wrapping.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}.{:03}s", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// A wall-clock time in milliseconds since 1970 UTC: for people and for expiry dates, never for a
/// decision about a lease, an order or a liveness.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub u64);

impl WallTime {
    /// Whole seconds since 1970.
    pub const fn secs(self) -> u64 {
        self.0 / 1_000
    }
}

/// The earliest of some deadlines, where `None` means never.
pub fn earliest(deadlines: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    deadlines.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_saturates_and_subtracting_never_underflows() {
        let late = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(late + Duration::from_secs(9), Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::ZERO - late, Duration::ZERO);
    }

    #[test]
    fn it_prints_seconds_and_milliseconds() {
        assert_eq!(Instant::from_nanos(12_345_678_901).to_string(), "+12.345s");
    }
}

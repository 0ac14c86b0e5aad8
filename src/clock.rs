//! THE clock: the only place in the program that reads one.
//!
//! Timers run on `CLOCK_BOOTTIME`, which counts suspend, so that a machine that slept knows it.
//! Where the system has no such clock (macOS) the monotonic one serves. Wall-clock time is for
//! people and for expiry dates only.

use crate::core::time::{Duration, Instant, WallTime};

/// The time now, for machines.
pub fn now() -> Instant {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// The time now, for people and expiry dates.
pub fn wall() -> WallTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let millis = i128::from(time.tv_sec) * 1_000 + i128::from(time.tv_nsec) / 1_000_000;
    WallTime(u64::try_from(millis).unwrap_or(0))
}

/// Waits until `deadline`, or for ever if there is none.
///
/// A machine that slept wakes its timers when it wakes: tokio's clock does not count suspend, so a
/// timer may fire late by the time slept, never early; inputs that arrive after the suspend carry
/// the right `now` and move every machine's deadlines along.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        None => std::future::pending().await,
        Some(deadline) => {
            let wait = deadline.since(now());
            if wait > Duration::ZERO {
                tokio::time::sleep(wait).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_and_the_wall_clock_is_in_this_century() {
        let before = now();
        assert!(now() >= before);
        assert!(wall().secs() > 1_700_000_000);
    }
}

//! The models that are checked. Each is complete within its limits; all of them together show what
//! one with all limits at once would be too large to show.

use super::electing;
use super::leasing::limits::Limits;

/// One model of leases.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// What it is called.
    pub name: &'static str,
    /// How far it goes.
    pub limits: Limits,
}

/// Nothing goes wrong but the network.
pub(super) const NETWORK: Limits = Limits {
    attempts: 1,
    streams: 1,
    unreachable: 0,
    timers: 0,
    crashes: 0,
    home_crashes: 0,
    reboots: 0,
    cancels: 0,
    failures: 0,
    rivals: false,
    one_term: false,
    open_again: false,
};

/// An offer gets lost, its home comes back to the node, and asks again.
pub(super) const LOST: Limits = Limits { attempts: 2, streams: 3, timers: 1, ..NETWORK };

/// Two controllers, of which each node and each home hears when it may be.
const RIVALS: Limits = Limits { rivals: true, attempts: 2, streams: 2, timers: 1, ..NETWORK };

/// The models of leases.
pub const LEASES: [Named; 9] = [
    Named { name: "lost-offers", limits: LOST },
    Named { name: "rivals", limits: RIVALS },
    Named { name: "rivals-of-one-term", limits: Limits { one_term: true, ..RIVALS } },
    Named {
        name: "opened-again",
        limits: Limits { one_term: true, open_again: true, attempts: 1, timers: 0, ..RIVALS },
    },
    Named {
        name: "failed-starts",
        limits: Limits { timers: 0, failures: 1, unreachable: 1, ..LOST },
    },
    Named { name: "cancelled", limits: Limits { cancels: 1, ..LOST } },
    Named { name: "node-crashes", limits: Limits { crashes: 1, ..LOST } },
    Named { name: "home-crashes", limits: Limits { home_crashes: 1, ..LOST } },
    Named { name: "node-reboots", limits: Limits { reboots: 1, ..LOST } },
];

/// Nothing goes wrong in an election but the network.
const QUIET: electing::Limits =
    electing::Limits { terms: 2, timers: 0, deaths: 0, crashes: 0, compares: 0 };

/// The models of elections.
pub const ELECTIONS: [(&str, electing::Limits); 3] = [
    ("elections", electing::Limits { terms: 3, timers: 4, deaths: 2, crashes: 1, ..QUIET }),
    ("elections-with-crashes", electing::Limits { timers: 3, deaths: 1, crashes: 2, ..QUIET }),
    (
        "elections-compared",
        electing::Limits { timers: 1, deaths: 1, compares: 1, crashes: 1, ..QUIET },
    ),
];

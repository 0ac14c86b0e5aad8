//! Whole-program tests: real daemons, real sockets, real processes, in temporary folders on
//! loopback. Every test has a mesh of its own and leaves nothing behind.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod failover;
mod faults;
mod keeper;
mod lan;
mod logs;
mod race;
mod restart;
mod run;
mod support;
mod waiting;

//! Joins the core and its hands into one daemon.
//!
//! The driver owns the core and performs its effects; everything else tells it what happened
//! through the [`inbox`] and never waits for it while it waits for them.

mod admission;
mod driver;
pub mod found;
mod hands;
mod home;
mod host;
mod http;
mod inbox;
mod launch;
mod memory;
mod notes;
mod own;
mod people;
mod sieve;
pub mod start;
mod stream;
mod views;

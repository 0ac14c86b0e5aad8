//! gpuvine: one pool out of everybody's GPU machines, without a head node.
//!
//! The map, from the bottom: `core` decides and touches nothing; `wire` and `auth` turn decisions
//! into bytes and proofs; `net`, `run`, `gpu` and `store` are the hands, which never import one
//! another; `daemon` joins hands and core; `cli` speaks to the daemon over `api` alone.

pub mod api;
pub mod auth;
#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
pub mod clock;
#[cfg(feature = "daemon")]
pub mod config;
pub mod core;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod gpu;
#[cfg(feature = "daemon")]
pub mod net;
#[cfg(feature = "daemon")]
pub mod run;
#[cfg(feature = "daemon")]
pub mod store;
pub mod wire;

//! The pure core: state machines that take `(input, now)` and push effects.
//!
//! A machine is a plain struct with three doors:
//!
//! - `handle(input, now, out)` changes its state and pushes what must happen into an
//!   [`outbox::Outbox`];
//! - `deadline()` tells when it next wants `Input::Deadline`, if ever;
//! - questions, which change nothing.
//!
//! Nothing here reads a clock, a socket, a file, an environment variable or a global generator, so
//! the daemon and the simulator drive the very same machines. Durable first is a conversation: a
//! machine emits `Store`, waits for `Stored`, and only then speaks. A refusal is a value, not an
//! error. What arrives from the network may come twice, late, never, or from a liar.

pub mod control;
pub mod controller;
pub mod directory;
pub mod election;
pub mod grant;
pub mod id;
pub mod job;
pub mod ledger;
pub mod membership;
pub mod message;
pub mod neighbours;
pub mod node;
pub mod outbox;
pub mod placement;
pub mod queue;
pub mod repair;
pub mod report;
pub mod reporting;
pub mod request;
pub mod rights;
pub mod roll;
pub mod signed;
pub mod task;
pub mod time;

//! Joins the core and its hands into one daemon.

//! Runs tasks: a keeper process stands over each.

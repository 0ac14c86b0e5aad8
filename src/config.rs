//! The daemon's configuration: file < environment < flags, resolved once at start.

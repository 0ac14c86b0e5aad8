//! Decides what this node says of itself, and when it says it.

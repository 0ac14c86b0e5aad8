//! Decides which GPUs fill a need: a pure function over the directory.

//! Which GPUs this machine has.

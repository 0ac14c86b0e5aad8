//! Decides whom this node grants GPUs while it is controller.

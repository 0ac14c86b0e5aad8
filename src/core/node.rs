//! Owns the machines of one node; routes inputs to them and forwards their effects.

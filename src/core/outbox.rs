//! Where a machine puts what must happen: a queue of effects that its caller drains.
//!
//! Effects come back from the call that caused them, in order. The bound is an assertion: one input
//! that causes more than [`EFFECTS_MAX`] effects is a bug in a machine, not load.

use std::collections::VecDeque;

/// The most effects that may lie in an outbox at once.
pub const EFFECTS_MAX: usize = 1 << 20;

/// Effects in the order in which they were caused.
#[derive(Debug, PartialEq, Eq)]
pub struct Outbox<E> {
    effects: VecDeque<E>,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self { effects: VecDeque::new() }
    }
}

impl<E> Outbox<E> {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an effect behind all others.
    pub fn push(&mut self, effect: E) {
        debug_assert!(self.effects.len() < EFFECTS_MAX, "a machine floods its outbox");
        self.effects.push_back(effect);
    }

    /// Takes the oldest effect.
    pub fn pop(&mut self) -> Option<E> {
        self.effects.pop_front()
    }

    /// Takes all effects, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = E> + '_ {
        self.effects.drain(..)
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }

    /// How many effects wait.
    pub fn len(&self) -> usize {
        self.effects.len()
    }
}

//! Virtual time: what happens next.

use std::collections::BTreeMap;

use gpuvine::core::time::Instant;

/// Events in the order of their time, and of their making where times are equal.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(Instant, u64), E>,
    made: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { events: BTreeMap::new(), made: 0 }
    }

    pub(crate) fn at(&mut self, time: Instant, event: E) {
        self.events.insert((time, self.made), event);
        self.made += 1;
    }

    /// When the next event happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

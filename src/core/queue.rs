//! Decides in what order requests are placed: first come, first served, by stamped keys.
//!
//! A key is stamped by the controller that hears of a request first, and kept by the home, so no
//! wall clock orders the queue and a failover does not reorder it. A key of a later term is a lie
//! and stamped anew.
//!
//! Always true: a task is in the queue at most once; limits hold for all homes and for each.

use std::collections::BTreeMap;
use std::ops::Range;

use super::control::{Ask, OrderKey};
use super::id::{Attempt, NodeId, Term};
use super::request::WaitReason;
use super::task::TaskId;
use super::time::Instant;

/// Requests of all homes that may wait.
pub const ASKS_MAX: usize = 65_536;

/// Requests of one home that may wait.
pub const ASKS_PER_HOME_MAX: usize = 10_000;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// What was asked.
    pub ask: Ask,
    /// The home that asked.
    pub home: NodeId,
    /// What the home was told last, and when.
    pub told: Option<(WaitReason, Instant)>,
    /// When it was asked for last: a home that has gone on without a word asks no more.
    pub asked: Instant,
}

/// The place of one request: its key, and its task where a liar repeats a key.
pub type Place = (OrderKey, TaskId);

/// Waiting requests in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    places: BTreeMap<TaskId, OrderKey>,
    homes: BTreeMap<NodeId, usize>,
    /// The next number of this reign.
    next: u64,
}

/// The queue has no room for another request of this home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The earlier attempts of a task's job: tasks are ordered by their jobs first.
pub(super) fn older(task: TaskId) -> Range<TaskId> {
    TaskId { attempt: Attempt(0), ..task }..task
}

impl Queue {
    /// Takes in a request, or its repetition, and answers its place.
    ///
    /// # Errors
    /// [`Full`] if it is new and a limit is reached; nothing changes.
    pub fn insert(
        &mut self,
        term: Term,
        home: NodeId,
        ask: Ask,
        now: Instant,
    ) -> Result<Place, Full> {
        let known = self.remove(ask.task);
        let of_home = self.homes.get(&home).copied().unwrap_or(0);
        if known.is_none() && (self.waiting.len() >= ASKS_MAX || of_home >= ASKS_PER_HOME_MAX) {
            return Err(Full);
        }
        // Two halves of a split mesh may both have had a reign of this term, and one reign may have
        // stamped what another had already: the earliest place counts. A later term is a lie.
        let claimed = ask.key.filter(|key| key.term <= term);
        let known_key = known.as_ref().map(|(key, _)| *key);
        let key = claimed.into_iter().chain(known_key).min().unwrap_or_else(|| self.stamp(term));
        // A home that does not know its place has not heard what it was told.
        let told = known.and_then(|(_, waiting)| waiting.told).filter(|_| ask.key.is_some());
        let place = (key, ask.task);
        self.places.insert(ask.task, key);
        *self.homes.entry(home).or_default() += 1;
        self.waiting.insert(place, Waiting { ask, home, told, asked: now });
        Ok(place)
    }

    fn stamp(&mut self, term: Term) -> OrderKey {
        let key = OrderKey { term, seq: self.next };
        self.next += 1;
        key
    }

    /// Takes out a request, if it waits.
    pub fn remove(&mut self, task: TaskId) -> Option<(OrderKey, Waiting)> {
        let key = self.places.remove(&task)?;
        let waiting = self.waiting.remove(&(key, task))?;
        if let Some(count) = self.homes.get_mut(&waiting.home) {
            *count -= 1;
            if *count == 0 {
                self.homes.remove(&waiting.home);
            }
        }
        Some((key, waiting))
    }

    /// Takes out what a home asked for earlier attempts of this task's job.
    pub fn remove_older(&mut self, task: TaskId, home: NodeId) {
        let places: Vec<Place> =
            self.places.range(older(task)).map(|(older, key)| (*key, *older)).collect();
        for place in places {
            if self.waiting.get(&place).is_some_and(|waiting| waiting.home == home) {
                self.remove(place.1);
            }
        }
    }

    /// Takes out everything that `gone` says is not wanted any more.
    pub fn remove_if(&mut self, gone: impl Fn(&Waiting) -> bool) {
        let tasks: Vec<TaskId> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| gone(waiting))
            .map(|((_, task), _)| *task)
            .collect();
        for task in tasks {
            self.remove(task);
        }
    }

    /// The request of a task, if it waits.
    pub fn find(&self, task: TaskId) -> Option<&Waiting> {
        self.waiting.get(&(*self.places.get(&task)?, task))
    }

    /// What the home of a waiting request was told, to be changed.
    pub fn told(&mut self, place: Place) -> Option<&mut Option<(WaitReason, Instant)>> {
        self.waiting.get_mut(&place).map(|waiting| &mut waiting.told)
    }

    /// All of them, the first first.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Waiting)> {
        self.waiting.iter()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::JobId;
    use crate::core::report::testing::node;
    use crate::core::request::Need;

    fn ask(job: u64, key: Option<OrderKey>) -> Ask {
        let task = TaskId { job: JobId::from_bits(job), attempt: Attempt(1) };
        Ask {
            task,
            need: Need::default(),
            owner: "o".into(),
            key,
            refused: Vec::new(),
            barred: Vec::new(),
        }
    }

    const T0: Instant = Instant::from_nanos(0);

    fn order(queue: &Queue) -> Vec<u64> {
        queue.iter().map(|((_, task), _)| task.job.bits()).collect()
    }

    #[test]
    fn first_come_is_first_and_asking_again_keeps_the_place() {
        let mut queue = Queue::default();
        for job in [3, 1, 2, 3] {
            queue.insert(Term(1), node(1), ask(job, None), T0).unwrap();
        }
        assert_eq!(order(&queue), [3, 1, 2]);
        assert_eq!(queue.homes[&node(1)], 3);
    }

    #[test]
    fn a_key_of_an_earlier_reign_comes_before_all_of_this_one() {
        let mut queue = Queue::default();
        queue.insert(Term(2), node(1), ask(1, None), T0).unwrap();
        let old = OrderKey { term: Term(1), seq: 900 };
        queue.insert(Term(2), node(2), ask(2, Some(old)), T0).unwrap();
        assert_eq!(order(&queue), [2, 1]);
    }

    #[test]
    fn a_later_attempt_replaces_the_earlier_ones_of_its_own_home_only() {
        let mut queue = Queue::default();
        queue.insert(Term(1), node(1), ask(1, None), T0).unwrap();
        queue.insert(Term(1), node(1), ask(2, None), T0).unwrap();
        let later = TaskId { job: JobId::from_bits(1), attempt: Attempt(2) };
        queue.remove_older(later, node(2));
        assert_eq!(order(&queue), [1, 2]);
        queue.remove_older(later, node(1));
        assert_eq!(order(&queue), [2]);
    }

    #[test]
    fn a_key_of_another_reign_of_the_same_term_is_kept() {
        let mut queue = Queue::default();
        let other = OrderKey { term: Term(2), seq: 6 };
        let (key, _) = queue.insert(Term(2), node(1), ask(1, Some(other)), T0).unwrap();
        assert_eq!(key, other);
    }

    #[test]
    fn a_request_keeps_the_earliest_of_its_places() {
        let mut queue = Queue::default();
        for job in [1, 2] {
            queue.insert(Term(3), node(1), ask(job, None), T0).unwrap();
        }
        let before = OrderKey { term: Term(2), seq: 9 };
        let (key, _) = queue.insert(Term(3), node(1), ask(2, Some(before)), T0).unwrap();
        assert_eq!((key, order(&queue)), (before, vec![2, 1]));
        let later = OrderKey { term: Term(3), seq: 1 };
        assert_eq!(queue.insert(Term(3), node(1), ask(2, Some(later)), T0).unwrap().0, before);
    }

    #[test]
    fn a_key_that_nobody_can_have_given_is_stamped_anew() {
        let mut queue = Queue::default();
        queue.insert(Term(2), node(1), ask(1, None), T0).unwrap();
        let lie = OrderKey { term: Term(9), seq: 0 };
        let (key, _) = queue.insert(Term(2), node(2), ask(2, Some(lie)), T0).unwrap();
        assert_eq!(key, OrderKey { term: Term(2), seq: 1 });
    }

    #[test]
    fn a_home_that_floods_is_refused_and_others_are_not() {
        let mut queue = Queue::default();
        for job in 0..ASKS_PER_HOME_MAX as u64 {
            queue.insert(Term(1), node(1), ask(job, None), T0).unwrap();
        }
        assert_eq!(queue.insert(Term(1), node(1), ask(77_777, None), T0), Err(Full));
        assert!(queue.insert(Term(1), node(1), ask(5, None), T0).is_ok());
        assert!(queue.insert(Term(1), node(2), ask(88_888, None), T0).is_ok());
        queue.remove_if(|waiting| waiting.home == node(1));
        assert_eq!(queue.len(), 1);
    }
}

//! A machine's disk: what was synced survives everything; of the rest a crash takes what it likes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gpuvine::core::id::{Incarnation, JobId, Term};
use gpuvine::core::job::{JobRecord, JobState};

/// Something to write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Job(Box<JobRecord>),
    Forget(JobId),
    Incarnation(Incarnation),
    Seniority(u64),
    Term(Term),
    Peer(usize),
}

/// What is on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) incarnation: Incarnation,
    pub(crate) term: Term,
    pub(crate) seniority: Option<u64>,
    pub(crate) jobs: BTreeMap<JobId, JobRecord>,
    pub(crate) peers: BTreeSet<usize>,
}

/// What a crash leaves of the commit that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    Fence,
    All,
}

/// A disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) image: Image,
    /// What was asked for and is not synced, the oldest first.
    pending: VecDeque<Write>,
    /// How many of them the commit that is under way takes.
    committing: usize,
    /// A copy that somebody made.
    pub(crate) saved: Option<Image>,
}

impl Disk {
    /// A disk with what is on this one now, and nothing of what is not.
    pub(crate) fn copy(&self) -> Self {
        Self { image: self.image.clone(), ..Self::default() }
    }

    /// Asks for a write. True if it is the first that waits: a commit is to be begun.
    pub(crate) fn ask(&mut self, write: Write) -> bool {
        self.pending.push_back(write);
        self.committing == 0 && self.pending.len() == 1
    }

    /// Begins a commit of all that waits; false if nothing does, or one is under way.
    pub(crate) fn begin(&mut self) -> bool {
        if self.committing > 0 {
            return false;
        }
        self.committing = self.pending.len();
        self.committing > 0
    }

    /// Whether something waits for the next commit.
    pub(crate) fn has_more(&self) -> bool {
        self.committing == 0 && !self.pending.is_empty()
    }

    /// The commit is done: what is on the disk now.
    pub(crate) fn finish(&mut self) -> Vec<Write> {
        let done: Vec<Write> = self.pending.drain(..self.committing).collect();
        self.committing = 0;
        done.iter().for_each(|write| self.image.apply(write));
        done
    }

    /// A crash: a commit that is under way is there or not, as a whole; what waited is gone. The
    /// numbers that only grow are in a file of their own, which is written before.
    pub(crate) fn crash(&mut self, left: Left) {
        match left {
            Left::Nothing => {}
            Left::Fence => {
                let fence =
                    |write: &&Write| matches!(write, Write::Incarnation(_) | Write::Term(_));
                let commit = self.pending.iter().take(self.committing);
                commit.filter(fence).for_each(|write| self.image.apply(write));
            }
            Left::All => drop(self.finish()),
        }
        self.pending.clear();
        self.committing = 0;
    }
}

impl Image {
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Job(record) => {
                self.jobs.insert(record.spec.id, (**record).clone());
            }
            Write::Forget(job) => {
                self.jobs.remove(job);
            }
            Write::Incarnation(number) => self.incarnation = self.incarnation.max(*number),
            Write::Seniority(place) => self.seniority = Some(*place),
            Write::Term(term) => self.term = self.term.max(*term),
            Write::Peer(peer) => {
                self.peers.insert(*peer);
            }
        }
    }
}

/// Whether a record is that of a task's end.
pub(crate) fn is_end(record: &JobRecord) -> bool {
    matches!(record.state, JobState::Ended { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_commit_leaves_the_fence_and_no_record() {
        let mut disk = Disk::default();
        for write in [Write::Term(Term(3)), Write::Seniority(5), Write::Incarnation(Incarnation(2))]
        {
            disk.ask(write);
        }
        assert!(disk.begin());
        disk.ask(Write::Term(Term(4)));
        disk.crash(Left::Fence);
        let Image { incarnation, term, seniority, .. } = disk.image;
        assert_eq!((incarnation, term, seniority), (Incarnation(2), Term(3), None));
    }
}

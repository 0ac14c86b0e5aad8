//! What stories are told with.

use gpuvine::core::id::JobId;
use gpuvine::core::job::JobState;
use gpuvine::core::node::{Input, Node};
use gpuvine::core::request::Need;
use gpuvine::core::time::Duration;

use crate::sim::machine::Temper;
use crate::sim::options::{Faults, Options};
use crate::sim::world::{User, World};

/// How long anything may take that a story waits for.
const PATIENCE: Duration = Duration::from_secs(180);

/// How closely it looks meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A mesh at peace, to which things happen.
pub(super) struct Story {
    pub(super) world: World,
    jobs: u64,
}

impl Story {
    /// Machines with so many GPUs each, in a mesh that has come together.
    pub(super) fn of(gpus: &[usize]) -> Self {
        let options = Options {
            seed: 7,
            gpus: gpus.to_vec(),
            jobs: 0,
            chaos: Duration::ZERO,
            calm: Duration::from_secs(240),
            faults: Faults::none(),
            fault_every: Duration::from_secs(1),
            latency: Duration::from_millis(1),
        };
        let mut world = World::new(options, true);
        world.found();
        let mut story = Self { world, jobs: 0 };
        story.until("the mesh comes together", is_well);
        story
    }

    /// Waits for something.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        let end = self.world.elapsed() + PATIENCE;
        while self.world.violation().is_none() && !is_so(&self.world) {
            if self.world.elapsed() > end {
                self.world.checks.fail("the_story_goes_on", format!("it never happens: {what}"));
                return;
            }
            self.world.run(LOOK_EVERY);
        }
    }

    /// Waits for something, and looks after every event.
    pub(super) fn until_the_moment(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        let end = self.world.now + PATIENCE;
        while self.world.violation().is_none() && !is_so(&self.world) {
            if self.world.agenda.next().is_none_or(|next| next > end) {
                self.world.checks.fail("the_story_goes_on", format!("it never happens: {what}"));
                return;
            }
            self.world.step();
        }
    }

    /// Something has to be so now.
    pub(super) fn expect(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        if !is_so(&self.world) {
            self.world.checks.fail("the_story_goes_on", format!("it is not so: {what}"));
        }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.world.run(span);
    }

    /// A user submits a job.
    pub(super) fn submit(&mut self, machine: usize, need: Need, temper: Temper) -> JobId {
        self.jobs += 1;
        let job = JobId::from_bits(self.jobs);
        let name = format!("job {}", self.jobs);
        self.world.on_user(User::Submit { machine, job, need, temper, name });
        job
    }

    /// A job on so many GPUs that takes so long.
    pub(super) fn run(&mut self, machine: usize, gpus: u32, runs: Duration) -> JobId {
        self.submit(machine, need(gpus), Temper { runs, ..Temper::default() })
    }

    pub(super) fn cancel(&mut self, machine: usize, job: JobId, now: bool) {
        self.world.on_user(User::Cancel { machine, job, now });
    }

    /// Which machine reigns, as machine `at` sees it.
    pub(super) fn controller(&self, at: usize) -> Option<usize> {
        let reign = node(&self.world, at)?.election().reign()?;
        self.world.ids.get(&reign.controller).copied()
    }

    /// Something is put into a core from outside.
    pub(super) fn input(&mut self, machine: usize, input: Input) {
        self.world.input(machine, input);
    }

    /// Everything comes right, and everybody can work again.
    pub(super) fn ends_well(mut self) -> World {
        if self.world.violation().is_none() {
            self.world.on_calm();
            self.world.settle();
        }
        self.world
    }
}

pub(super) fn need(gpus: u32) -> Need {
    Need { gpus, ..Need::default() }
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn node(world: &World, machine: usize) -> Option<&Node> {
    world.machines[machine].node.as_ref()
}

/// How far a job is at its home.
pub(super) fn state(world: &World, home: usize, job: JobId) -> Option<&JobState> {
    Some(&node(world, home)?.jobs().find(job)?.state)
}

pub(super) fn runs(world: &World, home: usize, job: JobId) -> bool {
    matches!(state(world, home, job), Some(JobState::Running { connected: true, .. }))
}

pub(super) fn waits(world: &World, home: usize, job: JobId) -> bool {
    matches!(state(world, home, job), Some(JobState::Waiting { .. }))
}

pub(super) fn has_ended(world: &World, home: usize, job: JobId) -> bool {
    matches!(state(world, home, job), Some(JobState::Ended { .. }))
}

/// Whether all is well.
pub(super) fn is_well(world: &World) -> bool {
    world.unrest().is_ok()
}

/// Whether everybody takes everybody for alive.
pub(super) fn all_see_all(world: &World) -> bool {
    let all = world.machines.len();
    (0..all).all(|machine| sees(world, machine) == all - 1)
}

/// How many others a machine takes for alive.
pub(super) fn sees(world: &World, machine: usize) -> usize {
    node(world, machine).map_or(0, |node| node.directory().alive().count() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(story: &Story) -> Option<&'static str> {
        story.world.violation().map(|broken| broken.rule)
    }

    #[test]
    fn what_never_happens_and_what_is_not_so_breaks_a_story() {
        let mut story = Story::of(&[1]);
        assert_eq!(broken(&story), None);
        story.until("pigs fly", |_| false);
        assert_eq!(broken(&story), Some("the_story_goes_on"));
        let mut story = Story::of(&[1]);
        story.until_the_moment("pigs fly", |_| false);
        assert_eq!(broken(&story), Some("the_story_goes_on"));
        let mut story = Story::of(&[1]);
        story.expect("pigs fly", |_| false);
        assert_eq!(broken(&story), Some("the_story_goes_on"));
    }
}

//! Users: they submit, and change their minds.

use gpuvine::core::id::JobId;
use gpuvine::core::job::{self, JobSpec};
use gpuvine::core::node::Input;
use gpuvine::core::request::Need;
use gpuvine::core::task::Command;
use gpuvine::core::time::Duration;
use rand::RngExt as _;

use super::{Event, User, World};
use crate::sim::invariants::Fact;
use crate::sim::machine::Temper;
use crate::sim::options::Fault;

impl World {
    /// Draws what users will do while there are faults.
    pub(crate) fn plan_work(&mut self) {
        let span = u64::try_from(self.options.chaos.as_millis()).unwrap_or(u64::MAX).max(1);
        for number in 0..self.options.jobs {
            let at = self.now + Duration::from_millis(self.rng.random_range(0..span));
            let machine = self.rng.random_range(0..self.machines.len());
            let job = JobId::from_bits(self.rng.random());
            let submit = User::Submit {
                machine,
                job,
                need: self.draw_need(),
                temper: self.draw_temper(),
                name: format!("job {number}"),
            };
            self.agenda.at(at, Event::User(submit));
            if self.options.faults.has(Fault::Cancel) && self.rng.random_bool(0.2) {
                // Soon, so that every state is met; or late.
                let after = match self.rng.random_bool(0.5) {
                    true => Duration::from_micros(self.rng.random_range(0..30_000)),
                    false => Duration::from_millis(self.rng.random_range(0..20_000)),
                };
                let cancel = User::Cancel { machine, job, now: self.rng.random_bool(0.3) };
                self.agenda.at(at + after, Event::User(cancel));
            }
        }
    }

    fn draw_need(&mut self) -> Need {
        let gpus = match self.rng.random_range(0..20) {
            0 | 1 => 0,
            2..=4 => 2,
            5 => 3,
            6 => 99,
            _ => 1,
        };
        let model = match self.rng.random_range(0..10) {
            0 => Some("h100".into()),
            1 => Some("a100".into()),
            _ => None,
        };
        let pinned = self.rng.random_bool(0.05);
        let node = pinned.then(|| self.rng.random_range(0..self.machines.len()));
        let node = node.map(|machine| self.machines[machine].id);
        Need { gpus, model, memory_bytes: None, node }
    }

    fn draw_temper(&mut self) -> Temper {
        let stubborn = self.options.faults.has(Fault::Stubborn);
        let mut odd = |chance: f64| stubborn && self.rng.random_bool(chance);
        let (ignores_term, lingers, unkillable) = (odd(0.3), odd(0.2), odd(0.05));
        let mut upto = |on: bool, millis: u64| match on {
            true => Duration::from_millis(self.rng.random_range(1..millis)),
            false => Duration::ZERO,
        };
        let (lingers, unkillable) = (upto(lingers, 8_000), upto(unkillable, 30_000));
        let runs = match self.rng.random_range(0..10) {
            0..=3 => Duration::from_micros(self.rng.random_range(500..50_000)),
            4..=7 => Duration::from_millis(self.rng.random_range(50..5_000)),
            _ => Duration::from_millis(self.rng.random_range(5_000..40_000)),
        };
        let code = self.rng.random_range(0..4);
        Temper { runs, code, ignores_term, lingers, unkillable }
    }

    pub(crate) fn on_user(&mut self, user: User) {
        match user {
            User::Submit { machine, job, need, temper, name } => {
                let taken =
                    self.machines[machine].node.as_ref().is_some_and(|node| node.jobs().has_room());
                if !taken {
                    return;
                }
                self.say(machine, "submits", format_args!("{job} {name}, {} GPUs", need.gpus));
                self.checks.see(&Fact::Submitted { job, need: &need });
                self.tempers.insert(job, temper);
                let spec = JobSpec {
                    id: job,
                    owner: "user".into(),
                    name,
                    need,
                    command: Command::default(),
                    submitted: self.wall(),
                };
                self.input(machine, Input::Job(job::Input::Submit(Box::new(spec))));
            }
            User::Cancel { machine, job, now } => {
                self.checks.see(&Fact::Cancelled { job });
                self.say(machine, "cancels", format_args!("{job} now={now}"));
                self.input(machine, Input::Job(job::Input::Cancel { job, now }));
            }
        }
    }
}

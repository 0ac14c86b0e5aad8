//! How a state of the model of leases goes on.

use gpuvine::core::task::TaskId;

use super::home::Home;
use super::host::{Host, Turn};
use super::note::Note;
use super::rules::{HomeFacts, HostFacts};
use super::{Action, Answer, Budget, Leasing, State, desk, home, host, rules, sights};
use crate::exhaustive::checker::{Model, Sights, Step};
use crate::sim::invariants::Violation;

impl Model for Leasing {
    type State = State;
    type Action = Action;

    fn start(&mut self) -> State {
        let hosts = [0, 1].map(|node| Host::new(node, &self.cast));
        let nets = [0, 1].map(|_| self.nets.put(Vec::new()));
        let mut state = State {
            hosts: hosts.map(|host| self.hosts.put(host)),
            homes: [0; 2],
            nets,
            budget: self.budget(),
        };
        for job in [0, 1] {
            let mut turn = Turn::new(&self.cast);
            // What a home does first breaks no rule: there is nothing yet that could be broken.
            let home = Home::new(job, &mut turn).unwrap_or_else(|broken| panic!("{broken:?}"));
            let said = turn.notes;
            state.homes[job] = self.homes.put(home);
            let notes: Vec<u32> = said.into_iter().map(|note| self.notes.put(note)).collect();
            state.nets[job] = self.with(state.nets[job], &notes);
        }
        state
    }

    fn actions(&mut self, state: &State, out: &mut Vec<Action>) {
        let (budget, rivals) = (&state.budget, self.cast.limits.rivals);
        for job in [0, 1] {
            for at in 0..self.nets.get(state.nets[job]).len() {
                let note = self.nets.get(state.nets[job])[at];
                self.deliveries(job, note, state, out);
            }
        }
        for node in [0, 1] {
            let mut events = Vec::new();
            self.hosts.get(state.hosts[node]).events(&mut events);
            events.retain(|event| match event {
                host::Event::Crash => budget.crashes > 0,
                host::Event::Reboot => budget.reboots > 0,
                host::Event::SpawnFails(_) => budget.failures > 0,
                host::Event::Follow(reign) => rivals || *reign == 0,
                _ => true,
            });
            out.extend(events.into_iter().map(|event| Action::Host(node, event)));
        }
        for job in [0, 1] {
            let mut events = Vec::new();
            self.homes.get(state.homes[job]).events(&mut events);
            events.retain(|event| match event {
                home::Event::Cancel => budget.cancels > 0,
                home::Event::Crash => budget.home_crashes > 0,
                home::Event::Follow => rivals,
                home::Event::Timer => budget.timers > 0,
                home::Event::TimerAlone => budget.timers > 0 && budget.unreachable > 0,
                _ => true,
            });
            out.extend(events.into_iter().map(|event| Action::Home(job, event)));
        }
    }

    fn step(&mut self, state: &State, action: Action) -> Step<State> {
        let mut next = *state;
        let answer = match action {
            Action::Home(job, event) => {
                let answer = self.home(state.homes[job], event)?;
                let alone = matches!(event, home::Event::HearAlone(_) | home::Event::TimerAlone);
                if alone && !answer.alone {
                    return Ok((*state, Sights::default()));
                }
                next.homes[job] = answer.next;
                answer
            }
            Action::Host(node, event) => {
                let answer = self.host(state.hosts[node], event)?;
                next.hosts[node] = answer.next;
                if let host::Event::Hear(note) = event {
                    self.arrives(note, &mut next);
                }
                answer
            }
        };
        spend(&mut next.budget, action);
        for (job, note) in &answer.notes {
            next.nets[*job] = self.with(next.nets[*job], &[*note]);
        }
        self.forget_dead(&mut next);
        Ok((next, answer.sights))
    }

    fn look(&mut self, state: &State) -> Result<Sights, Violation> {
        while self.host_facts.len() < self.hosts.len() {
            let host = self.hosts.get(self.host_facts.len() as u32);
            self.host_facts.push(HostFacts::new(host, &self.cast));
        }
        while self.home_facts.len() < self.homes.len() {
            let home = self.homes.get(self.home_facts.len() as u32);
            self.home_facts.push(HomeFacts::new(home, &self.cast));
        }
        let hosts = state.hosts.map(|at| &self.host_facts[at as usize]);
        let homes = state.homes.map(|at| &self.home_facts[at as usize]);
        rules::look(hosts, homes, &self.cast)
    }

    fn missing(&self, seen: Sights) -> Vec<&'static str> {
        let limits = &self.cast.limits;
        let fails = limits.failures + limits.unreachable + limits.timers > 0;
        let wanted = [
            (true, sights::BOTH_SUCCEED),
            (true, sights::BOTH_LEASED),
            (true, sights::TAKEN),
            (limits.rivals, sights::RIVAL),
            (true, sights::THIEF),
            (limits.streams > 1 && limits.timers > 0, sights::UNKNOWN),
            (limits.streams > 1 && limits.timers > 0, sights::OLD_ATTEMPT),
            (limits.attempts > 1 && limits.streams > 2 && fails, sights::LATER_ATTEMPT),
            (limits.crashes + limits.reboots > 0, sights::OTHER_START),
            (limits.crashes > 0, sights::ADOPTED),
            (limits.home_crashes > 0, sights::LOST),
            (limits.cancels > 0, sights::REJECTED),
            (limits.open_again, sights::RESUMED),
        ];
        let unseen = |(is, bit): &(bool, u32)| *is && seen.0 & (1 << bit) == 0;
        wanted.iter().filter(|it| unseen(it)).map(|(_, bit)| sights::NAMES[*bit as usize]).collect()
    }

    fn tell(&self, _: &State, action: Action) -> String {
        let note = |number: u32| self.notes.get(number).tell(&self.cast);
        match action {
            Action::Host(_, host::Event::Hear(number)) => note(number),
            Action::Home(job, home::Event::Hear(number)) => format!("job {job}: {}", note(number)),
            Action::Home(job, home::Event::HearAlone(number)) => {
                format!("job {job}: {}, and has no link", note(number))
            }
            Action::Home(job, event) => format!("job {job}: {event:?}"),
            Action::Host(node, host::Event::Steal { note: number, home }) => {
                format!("node {node} is shown by home {home}: {}", note(number))
            }
            Action::Host(node, event) => match event {
                host::Event::Spawn(task) => {
                    format!("node {node} begins task {}", self.cast.task(task))
                }
                host::Event::SpawnFails(task) => {
                    format!("node {node} cannot begin task {}", self.cast.task(task))
                }
                host::Event::End(task) => {
                    format!("task {} ends on node {node}", self.cast.task(task))
                }
                other => format!("node {node}: {other:?}"),
            },
        }
    }
}

/// What goes wrong is used up.
fn spend(budget: &mut Budget, action: Action) {
    if matches!(action, Action::Home(_, home::Event::TimerAlone)) {
        budget.timers = budget.timers.saturating_sub(1);
    }
    let of = match action {
        Action::Home(_, home::Event::Timer) => &mut budget.timers,
        Action::Home(_, home::Event::Cancel) => &mut budget.cancels,
        Action::Home(_, home::Event::Crash) => &mut budget.home_crashes,
        Action::Host(_, host::Event::Crash) => &mut budget.crashes,
        Action::Home(_, home::Event::HearAlone(_) | home::Event::TimerAlone) => {
            &mut budget.unreachable
        }
        Action::Host(_, host::Event::Reboot) => &mut budget.reboots,
        Action::Host(_, host::Event::SpawnFails(_)) => &mut budget.failures,
        Action::Home(..) | Action::Host(..) => return,
    };
    *of = of.saturating_sub(1);
}

impl Leasing {
    fn budget(&self) -> Budget {
        let limits = &self.cast.limits;
        Budget {
            timers: limits.timers,
            unreachable: limits.unreachable,
            crashes: limits.crashes,
            home_crashes: limits.home_crashes,
            reboots: limits.reboots,
            cancels: limits.cancels,
            failures: limits.failures,
        }
    }

    /// How a note can arrive, or what it brings about.
    fn deliveries(&mut self, job: usize, note: u32, state: &State, out: &mut Vec<Action>) {
        let alone = state.budget.unreachable > 0;
        let heard = |note: u32| {
            let alone = alone.then_some(home::Event::HearAlone(note));
            let events = [Some(home::Event::Hear(note)), alone];
            events.into_iter().flatten().map(move |event| Action::Home(job, event))
        };
        match self.notes.get(note) {
            Note::Ask { desk, task } => {
                let (desk, task) = (*desk, *task);
                for host in state.hosts {
                    self.learn_grants(desk, task, host);
                    out.extend(self.grants[&(desk, task, host)].iter().copied().flat_map(heard));
                }
            }
            Note::Granted { .. } | Note::Answer { .. } => out.extend(heard(note)),
            Note::Open { node, .. } => {
                let (node, home) = (usize::from(*node), job as u8);
                out.push(Action::Host(node, host::Event::Hear(note)));
                let by_other = host::Event::Steal { note, home: 1 - home };
                out.push(Action::Host(node, by_other));
                let elsewhere = host::Event::Steal { note, home };
                out.push(Action::Host(1 - node, elsewhere));
            }
            Note::Attach { node, .. } | Note::Acknowledge { node, .. } => {
                out.push(Action::Host(usize::from(*node), host::Event::Hear(note)));
            }
        }
    }

    /// Finds out what a controller may grant to a task on a node.
    fn learn_grants(&mut self, desk: u8, task: TaskId, host: u32) {
        if self.grants.contains_key(&(desk, task, host)) {
            return;
        }
        let mut grants = Vec::new();
        for report in &self.hosts.get(host).past.shown {
            for note in desk::answers(&self.cast, desk, task, report) {
                grants.push(self.notes.put(note));
            }
        }
        self.grants.insert((desk, task, host), grants);
    }

    /// What opens a stream does so once.
    fn arrives(&mut self, note: u32, next: &mut State) {
        if let Note::Open { stream, .. } = self.notes.get(note)
            && !self.cast.limits.open_again
        {
            let job = usize::from(stream.job);
            let mut net = self.nets.get(next.nets[job]).clone();
            net.retain(|other| *other != note);
            next.nets[job] = self.nets.put(net);
        }
    }

    /// Forgets what can change nothing any more: answers on streams that their homes have closed,
    /// and nodes' memory of who waits on those. No stream is ever opened again, and no home hears
    /// what comes on a closed one, so that states that differ in nothing else have one future.
    fn forget_dead(&mut self, state: &mut State) {
        let open = state.homes.map(|home| self.homes.get(home).open());
        for job in [0, 1] {
            let key = (state.nets[job], state.homes[job]);
            state.nets[job] = if let Some(net) = self.live_nets.get(&key) {
                *net
            } else {
                let home = self.homes.get(key.1);
                let live = |note: &u32| home.is_live(self.notes.get(*note));
                let net = self.nets.get(key.0).iter().copied().filter(live).collect();
                let net = self.nets.put(net);
                self.live_nets.insert(key, net);
                net
            };
        }
        for node in [0, 1] {
            let key = (state.hosts[node], open);
            state.hosts[node] = if let Some(host) = self.live_hosts.get(&key) {
                *host
            } else {
                let mut host = self.hosts.get(key.0).clone();
                host.forget_dead(open);
                let host = self.hosts.put(host);
                self.live_hosts.insert(key, host);
                host
            };
        }
    }

    /// What is under way, and these notes.
    fn with(&mut self, net: u32, notes: &[u32]) -> u32 {
        let known = self.nets.get(net);
        if notes.iter().all(|note| known.binary_search(note).is_ok()) {
            return net;
        }
        let mut more = known.clone();
        for note in notes {
            if let Err(at) = more.binary_search(note) {
                more.insert(at, *note);
            }
        }
        self.nets.put(more)
    }

    fn home(&mut self, at: u32, event: home::Event) -> Result<Answer, Violation> {
        if let Some(known) = self.home_answers.get(&(at, event)) {
            return known.clone();
        }
        let mut home = self.homes.get(at).clone();
        let mut turn = Turn::new(&self.cast);
        let happened = match event {
            home::Event::Hear(note) => home.hear(self.notes.get(note), true, &mut turn),
            home::Event::HearAlone(note) => home.hear(self.notes.get(note), false, &mut turn),
            other => home.happen(other, &mut turn),
        };
        let (said, sights, alone) = (turn.notes, turn.sights, home.alone);
        home.alone = false;
        home.forget_dead(&self.cast);
        let answer = happened.map(|()| {
            let next = self.homes.put(home);
            Answer { next, notes: self.number(said), sights, alone }
        });
        self.home_answers.insert((at, event), answer.clone());
        answer
    }

    fn host(&mut self, at: u32, event: host::Event) -> Result<Answer, Violation> {
        if let Some(known) = self.host_answers.get(&(at, event)) {
            return known.clone();
        }
        let mut host = self.hosts.get(at).clone();
        let mut turn = Turn::new(&self.cast);
        let happened = match event {
            host::Event::Hear(note) => host.hear(self.notes.get(note), &mut turn),
            host::Event::Steal { note, home } => match self.notes.get(note) {
                Note::Open { stream, grant, .. } => {
                    let home = self.cast.nodes[usize::from(home)];
                    host.offer(home, *stream, grant, &mut turn)
                }
                _ => Ok(()),
            },
            other => host.happen(other, &mut turn),
        };
        let (mut said, sights) = (turn.notes, turn.sights);
        let stolen = matches!(event, host::Event::Steal { .. });
        if stolen {
            // A thief is told why, the home is not.
            said.clear();
        }
        let answer = happened.map(|()| {
            let next = if stolen { at } else { self.hosts.put(host) };
            Answer { next, notes: self.number(said), sights, alone: false }
        });
        self.host_answers.insert((at, event), answer.clone());
        answer
    }

    /// Notes by their numbers, with the jobs to which they belong.
    fn number(&mut self, said: Vec<Note>) -> Vec<(usize, u32)> {
        said.into_iter().map(|note| (note.job(&self.cast), self.notes.put(note))).collect()
    }
}

//! One run: a mesh is made, and one thing after the other is done to it and measured.

use std::collections::BTreeMap;

use gpuvine::core::id::{Attempt, GpuUuid, Incarnation, JobId, LeaseSeq, Term};
use gpuvine::core::ledger::{self, LeaseRecord};
use gpuvine::core::node::{Census, Config, Input, Node};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::report::{Gpu, GpuHealth};
use gpuvine::core::reporting::Facts;
use gpuvine::core::rights::Rights;
use gpuvine::core::signed::Key;
use gpuvine::core::task::TaskId;
use gpuvine::core::time::{Duration, Instant, WallTime};
use gpuvine::core::{controller, election};
use rand::RngExt as _;

use super::figures::{Figures, Load, Spread};
use super::mesh::Mesh;
use super::watch::{Watch, What};
use crate::stopwatch::Stopwatch;

/// How long a mesh may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long idling and being busy are measured.
const IDLE_FOR: Duration = Duration::from_secs(30);
const BUSY_FOR: Duration = Duration::from_secs(10);

/// Leases that change in a second in the whole mesh while it is busy.
const BUSY_CHANGES: u32 = 20;

/// Changes that are followed everywhere, and how often anything is killed.
const CHANGES: usize = 20;
const KILLS: usize = 3;

/// How long a daemon that does nothing for a while does nothing.
const SLEEP_FOR: Duration = Duration::from_secs(3);

/// A mesh that is being measured.
pub(super) struct Run<'a> {
    mesh: Mesh,
    nodes: usize,
    /// How often each daemon was started, and how often its GPU was leased.
    starts: Vec<u64>,
    seqs: Vec<u64>,
    leases: BTreeMap<usize, TaskId>,
    jobs: u64,
    /// How often somebody was rightly declared dead.
    deaths: u64,
    told: &'a mut dyn FnMut(&str),
    stopwatch: Stopwatch,
    begun: Instant,
}

impl<'a> Run<'a> {
    /// A mesh of so many nodes, and one more that will join it.
    pub(super) fn new(nodes: usize, seed: u64, told: &'a mut dyn FnMut(&str)) -> Self {
        let ids = (0..=nodes).map(|index| key(index).id()).collect();
        let mesh = Mesh::new(ids, seed);
        Self {
            begun: mesh.now,
            mesh,
            nodes,
            starts: vec![0; nodes + 1],
            seqs: vec![0; nodes + 1],
            leases: BTreeMap::new(),
            jobs: 0,
            deaths: 0,
            told,
            stopwatch: Stopwatch::start(),
        }
    }

    /// Everything, in order.
    pub(super) fn measure(mut self) -> Result<Figures, String> {
        let mut figures = Figures { nodes: self.nodes, ..Figures::default() };
        self.found()?;
        (self.told)("idle");
        figures.idle = self.load(IDLE_FOR, 0);
        figures.links = self.mesh.links();
        (self.told)("changes");
        (figures.change_controller, figures.change_all) = self.changes()?;
        (self.told)("busy");
        figures.busy = self.load(BUSY_FOR, BUSY_CHANGES);
        figures.busy_changes = BUSY_CHANGES;
        (self.told)("sleepers");
        self.sleepers();
        (self.told)("deaths");
        figures.death_kill = self.deaths(false)?;
        figures.death_power = self.deaths(true)?;
        (self.told)("failovers");
        figures.failover_kill = self.failovers(false)?;
        figures.failover_power = self.failovers(true)?;
        (self.told)("a join");
        (figures.join_known, figures.join_knows_ms) = self.join()?;
        (self.told)("rest");
        self.rest()?;
        figures.false_deaths = self.mesh.deaths.saturating_sub(self.deaths);
        let elapsed = self.mesh.now.since(self.begun).as_secs_f64();
        figures.virtual_per_real_second = elapsed / (self.stopwatch.ms() / 1_000.0);
        Ok(figures)
    }

    /// All know all from the beginning; then they link, and the best placed claims.
    fn found(&mut self) -> Result<(), String> {
        (self.told)("founding");
        let at = WallTime(1);
        let mut nodes: Vec<Node> = (0..self.nodes).map(|index| self.node(index, None)).collect();
        for (index, node) in nodes.iter_mut().enumerate() {
            // What they would gossip of themselves meanwhile, all know already.
            let mut out = Outbox::new();
            for input in first_words(index) {
                node.handle(input, self.mesh.now, at, &mut out);
            }
        }
        self.mesh.now = self.mesh.now + Duration::from_secs(2);
        for node in &mut nodes {
            node.handle(Input::Deadline, self.mesh.now, at, &mut Outbox::new());
        }
        let census = Census::of(&nodes, self.mesh.now);
        let mut wishes = Vec::new();
        for (index, mut node) in nodes.into_iter().enumerate() {
            let mut out = Outbox::new();
            node.adopt(&census, self.mesh.now, at, &mut out);
            self.mesh.start(index, node);
            wishes.push(out);
        }
        for (index, out) in wishes.into_iter().enumerate() {
            self.mesh.after(index, out);
        }
        (self.told)("warming up");
        self.wait(What::Reign(None), "follow somebody")?;
        self.mesh.run(Duration::from_secs(10));
        Ok(())
    }

    /// What a node sends in a second while so many leases change in the mesh.
    fn load(&mut self, span: Duration, changes: u32) -> Load {
        let (before, dials) = (self.mesh.traffic, self.mesh.dials);
        let steps = changes.max(1) * u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        for _ in 0..steps {
            if changes > 0 {
                let machine = self.someone();
                self.change(machine);
            }
            self.mesh.run(span / steps);
        }
        let seconds = span.as_secs_f64() * self.nodes as f64;
        Load {
            messages: (self.mesh.traffic.messages - before.messages) as f64 / seconds,
            bytes: (self.mesh.traffic.bytes - before.bytes) as f64 / seconds,
            dials: (self.mesh.dials - dials) as f64 / seconds,
        }
    }

    /// Leases change, one after the other: how soon the controller and all others know.
    fn changes(&mut self) -> Result<(Spread, Spread), String> {
        let (mut controller, mut all) = (Vec::new(), Vec::new());
        for _ in 0..CHANGES {
            let (machine, reigns) = (self.someone(), self.controller()?);
            let Some(node) = &self.mesh.machines[machine].node else { continue };
            let (id, (start, version)) = (node.id(), node.report().age());
            let what = What::Report(id, (start, version.next()));
            self.mesh.watch = Some(Watch::new(what, self.mesh.now, &self.up()));
            self.change(machine);
            let watch = self.end_watch("know of a change")?;
            controller.extend(watch.of(reigns));
            all.extend(watch.took());
            // No report is gossiped twice in a second.
            self.mesh.run(Duration::from_millis(1_500));
        }
        Ok((Spread::of(controller), Spread::of(all)))
    }

    /// A hundredth of the daemons stop for a while: nobody must think them dead.
    fn sleepers(&mut self) {
        for _ in 0..2 {
            for _ in 0..self.nodes.div_ceil(100) {
                let machine = self.someone();
                self.mesh.sleep(machine, SLEEP_FOR);
            }
            self.mesh.run(Duration::from_secs(12));
        }
    }

    fn deaths(&mut self, silent: bool) -> Result<Spread, String> {
        let mut took = Vec::new();
        for _ in 0..KILLS {
            let machine = self.someone();
            took.extend(self.kill(machine, silent)?.took());
            self.restart(machine)?;
        }
        Ok(Spread::of(took))
    }

    fn failovers(&mut self, silent: bool) -> Result<Spread, String> {
        let mut took = Vec::new();
        for _ in 0..KILLS {
            let machine = self.controller()?;
            let before =
                self.mesh.machines[machine].node.as_ref().and_then(|n| n.election().reign());
            self.mesh.end(machine, silent);
            self.mesh.watch = Some(Watch::new(What::Reign(before), self.mesh.now, &self.up()));
            took.extend(self.end_watch("follow another controller")?.took());
            self.wait(What::Dead(self.mesh.names[machine]), "know of a death")?;
            self.deaths += self.living();
            self.restart(machine)?;
        }
        Ok(Spread::of(took))
    }

    fn kill(&mut self, machine: usize, silent: bool) -> Result<Watch, String> {
        self.mesh.end(machine, silent);
        let what = What::Dead(self.mesh.names[machine]);
        self.mesh.watch = Some(Watch::new(what, self.mesh.now, &self.up()));
        let watch = self.end_watch("know of a death")?;
        self.deaths += self.living();
        Ok(watch)
    }

    /// A daemon starts again, and all come to know it.
    fn restart(&mut self, machine: usize) -> Result<(), String> {
        self.leases.remove(&machine);
        let other = self.someone();
        let node = self.node(machine, Some(other));
        self.mesh.start(machine, node);
        for input in first_words(machine) {
            self.mesh.input(machine, input);
        }
        let (id, start) = (self.mesh.names[machine], Incarnation(self.starts[machine]));
        self.wait(What::Alive(id, start), "know of a start")?;
        self.mesh.run(Duration::from_secs(5));
        Ok(())
    }

    /// One that nobody knows joins.
    fn join(&mut self) -> Result<(Spread, f64), String> {
        let (machine, other) = (self.nodes, self.someone());
        let mut node = self.node(machine, Some(other));
        let mut out = Outbox::new();
        for input in first_words(machine) {
            node.handle(input, self.mesh.now, WallTime(1), &mut out);
        }
        let what = What::Alive(node.id(), Incarnation(1));
        self.mesh.watch = Some(Watch::new(what, self.mesh.now, &self.up()));
        let since = self.mesh.now;
        self.mesh.start(machine, node);
        self.mesh.after(machine, out);
        let watch = self.end_watch("know one that joined")?;
        let knows = |mesh: &Mesh| {
            let node = mesh.machines[machine].node.as_ref();
            node.is_some_and(|node| node.directory().living() == self.nodes + 1)
        };
        while !knows(&self.mesh) {
            if self.mesh.now.since(since) > PATIENCE {
                return Err("the one that joined does not know everybody".into());
            }
            self.mesh.run(Duration::from_millis(10));
        }
        let took = self.mesh.now.since(since).as_secs_f64() * 1_000.0;
        Ok((Spread::of(watch.took().collect()), took))
    }

    /// In the end all have the same directory, believe in all, and follow the same controller.
    fn rest(&mut self) -> Result<(), String> {
        let until = self.mesh.now + PATIENCE;
        loop {
            let nodes = || self.mesh.machines.iter().filter_map(|machine| machine.node.as_ref());
            let all = nodes().count();
            let first =
                nodes().next().map(|node| (node.directory().digest(), node.election().reign()));
            let differ = |node: &&Node| {
                let own = (node.directory().digest(), node.election().reign());
                Some(own) != first || node.directory().living() != all
            };
            let count = nodes().filter(differ).count();
            if count == 0 {
                return Ok(());
            }
            if self.mesh.now >= until {
                return Err(format!("{count} of {all} nodes are not at rest"));
            }
            self.mesh.run(Duration::from_millis(500));
        }
    }

    /// A lease is made on a machine's GPU, or ends.
    fn change(&mut self, machine: usize) {
        if let Some(task) = self.leases.remove(&machine) {
            self.mesh.input(machine, Input::Ledger(ledger::Input::Gone { task }));
            self.mesh.input(machine, Input::Ledger(ledger::Input::Acknowledged { task }));
            return;
        }
        self.jobs += 1;
        self.seqs[machine] += 1;
        let task = TaskId { job: JobId::from_bits(self.jobs), attempt: Attempt(1) };
        let lease = LeaseRecord {
            task,
            gpus: vec![(gpu(machine).uuid, LeaseSeq(self.seqs[machine]))],
            home: self.mesh.names[machine],
            owner: "ada".into(),
            name: "train".into(),
            since: WallTime(1),
        };
        self.leases.insert(machine, task);
        self.mesh.input(machine, Input::Ledger(ledger::Input::Adopt(lease)));
    }

    /// One that is up and neither controller nor near it in rank.
    fn someone(&mut self) -> usize {
        let first = self.nodes.min(8) / 2;
        loop {
            let machine = self.mesh.rng.random_range(first..self.nodes);
            let node = self.mesh.machines[machine].node.as_ref();
            if node.is_some_and(|node| !node.election().is_controller()) {
                return machine;
            }
        }
    }

    fn controller(&self) -> Result<usize, String> {
        let reigns = |node: &Node| node.election().is_controller();
        let machines = self.mesh.machines.iter();
        let mut nodes = machines.map(|machine| machine.node.as_ref());
        nodes.position(|node| node.is_some_and(reigns)).ok_or_else(|| "nobody reigns".into())
    }

    fn up(&self) -> Vec<bool> {
        self.mesh.machines.iter().map(|machine| machine.node.is_some()).collect()
    }

    fn living(&self) -> u64 {
        self.up().into_iter().filter(|up| *up).count() as u64
    }

    fn wait(&mut self, what: What, to_do: &str) -> Result<(), String> {
        let mut watch = Watch::new(what, self.mesh.now, &self.up());
        for (index, machine) in self.mesh.machines.iter().enumerate() {
            if let Some(node) = &machine.node {
                watch.look(index, node, self.mesh.now);
            }
        }
        self.mesh.watch = Some(watch);
        self.end_watch(to_do).map(drop)
    }

    fn end_watch(&mut self, to_do: &str) -> Result<Watch, String> {
        let over = self.mesh.run(PATIENCE);
        match self.mesh.watch.take() {
            Some(watch) if over => Ok(watch),
            watch => {
                let missing = watch.map_or(0, |watch| watch.missing());
                Err(format!("{missing} nodes do not {to_do} after {PATIENCE:?}"))
            }
        }
    }

    /// The core of a machine at its next start.
    fn node(&mut self, index: usize, bootstrap: Option<usize>) -> Node {
        self.starts[index] += 1;
        let facts = Facts {
            name: format!("n{index}"),
            labels: BTreeMap::new(),
            priority: 0,
            cpus: 64,
            memory_bytes: 512 << 30,
            software: "simulated".into(),
        };
        let config = Config {
            key: key(index),
            incarnation: Incarnation(self.starts[index]),
            term: Term(0),
            seniority: (index < self.nodes).then_some(index as u64),
            rights: Rights::ALL,
            facts,
            bootstrap: bootstrap.map(|other| format!("m{other}")).into_iter().collect(),
            remembered: Vec::new(),
            seed: self.mesh.rng.random(),
            election: election::Config::default(),
            controller: controller::Config::default(),
            ledger: ledger::Config::default(),
        };
        Node::new(config, self.mesh.now)
    }
}

/// What a daemon tells its core first.
fn first_words(index: usize) -> [Input; 2] {
    [Input::Addresses(vec![format!("m{index}")]), Input::Inventory(vec![gpu(index)], None)]
}

fn key(index: usize) -> Key {
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&(index as u64 + 1).to_le_bytes());
    Key::from_seed(&seed)
}

fn gpu(index: usize) -> Gpu {
    Gpu {
        uuid: GpuUuid(format!("GPU-{index}")),
        index: 0,
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: 80 << 30,
        memory_free_bytes: 80 << 30,
        utilization: None,
        health: GpuHealth::Usable,
        seq: LeaseSeq(0),
        lease: None,
    }
}

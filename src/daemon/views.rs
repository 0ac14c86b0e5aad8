//! From the core's state to what users see.

use crate::api::{ControllerView, GpuView, JobView, NodeView, Status, words};
use crate::core::directory::Entry;
use crate::core::id::{JobId, NodeId};
use crate::core::job::{JobRecord, JobState, Place};
use crate::core::node::Node;
use crate::core::report::{Gpu, GpuHealth, LeaseState, LeaseView, NO_PLACE, NodeState, Report};
use crate::core::task::Outcome;
use crate::core::time::{Duration, WallTime};

/// A time as people and programs read it.
pub(super) fn utc(time: WallTime) -> String {
    // The last second of the year 9999: what comes after cannot be written.
    let millis = time.0.min(253_402_300_799_000);
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_millis(millis))
        .to_string()
}

/// What people call a node.
pub(super) fn name(node: &Node, id: NodeId) -> String {
    match node.directory().get(id) {
        Some(entry) => entry.report().name.clone(),
        None => id.short(),
    }
}

/// This node and its mesh.
pub(super) fn status(
    node: &Node,
    mesh: String,
    up: Duration,
    notes: impl Iterator<Item = String>,
) -> Status {
    let report = node.report();
    let alive: Vec<&Report> = node.directory().alive().collect();
    let jobs = |wanted: fn(&JobState) -> bool| {
        node.jobs().iter().filter(|record| wanted(&record.state)).count()
    };
    Status {
        node: report.node.to_string(),
        name: report.name.clone(),
        mesh,
        version: report.software.clone(),
        state: state(report).to_owned(),
        incarnation: report.incarnation.0,
        uptime_secs: up.as_secs(),
        addresses: report.addresses.clone(),
        controller: controller(node),
        members_alive: alive.len(),
        members_known: node.directory().iter().filter(|(_, entry)| !has_left(entry)).count(),
        links: node.neighbours().links().len(),
        gpus_total: alive.iter().map(|report| node.offered(report).len()).sum(),
        gpus_free: alive.iter().map(|report| free(node, report)).sum(),
        jobs_waiting: jobs(|state| matches!(state, JobState::Waiting { .. })),
        jobs_running: jobs(|state| matches!(state, JobState::Running { .. })),
        queue: node.controller().waiting(),
        notes: notes.chain(report.gpus_note.clone()).chain(absent(node)).collect(),
    }
}

fn controller(node: &Node) -> Option<ControllerView> {
    let claim = node.election().claim().filter(|_| !node.election().is_vacant())?;
    Some(ControllerView {
        id: claim.signer().to_string(),
        name: name(node, claim.signer()),
        term: claim.value().term.0,
        why: words::why(&claim.value().why, |id| name(node, id)),
        me: claim.signer() == node.id(),
    })
}

/// All nodes, the longest in the mesh first.
pub(super) fn nodes(node: &Node) -> Vec<NodeView> {
    let controller = controller(node).map(|controller| controller.id);
    let mut entries: Vec<(NodeId, &Entry)> = node.directory().iter().collect();
    entries.sort_by_key(|(id, entry)| (entry.report().seniority, *id));
    let view = |(id, entry): (NodeId, &Entry)| {
        let report = entry.report();
        NodeView {
            id: id.to_string(),
            name: report.name.clone(),
            state: node_state(node, entry).to_owned(),
            controller: controller.as_ref() == Some(&id.to_string()),
            me: id == node.id(),
            linked: node.neighbours().links().contains(&id),
            gpus_total: node.offered(report).len(),
            gpus_free: if entry.is_alive() { free(node, report) } else { 0 },
            gpus_note: report.gpus_note.clone(),
            cpus: report.cpus,
            memory_bytes: report.memory_bytes,
            memory_free_bytes: report.memory_free_bytes,
            labels: report.labels.clone(),
            version: report.software.clone(),
            addresses: report.addresses.clone(),
            seniority: Some(report.seniority).filter(|seniority| *seniority != NO_PLACE),
            priority: report.priority,
        }
    };
    entries.into_iter().map(view).collect()
}

/// GPUs of a living node that a task could have now.
fn free(node: &Node, report: &Report) -> usize {
    let serves = state(report) == "serving";
    node.offered(report).iter().filter(|gpu| serves && gpu.is_free()).count()
}

/// Members that should be there and are not, in a sentence.
fn absent(node: &Node) -> Option<String> {
    let away = |(_, entry): &(NodeId, &Entry)| !entry.is_alive() && !has_left(entry);
    let names: Vec<String> = node
        .directory()
        .iter()
        .filter(away)
        .map(|(_, entry)| entry.report().name.clone())
        .collect();
    (!names.is_empty()).then(|| format!("not reachable: {}", words::list(&names)))
}

/// Whether a node has said goodbye.
fn has_left(entry: &Entry) -> bool {
    entry.report().state == NodeState::Leaving
}

fn node_state(node: &Node, entry: &Entry) -> &'static str {
    match entry.is_alive() {
        // Its goodbye is the last that comes of it, seen dead or not.
        _ if has_left(entry) => "left",
        true if entry.report().seniority == NO_PLACE => "joining",
        true if !node.may_serve(entry.report().node) => "guest",
        true => state(entry.report()),
        false => "down",
    }
}

fn state(report: &Report) -> &'static str {
    match report.state {
        NodeState::Serving | NodeState::Draining if report.seniority == NO_PLACE => "joining",
        NodeState::Serving => "serving",
        NodeState::Draining => "draining",
        NodeState::Leaving => "leaving",
    }
}

/// The board.
pub(super) fn gpus(node: &Node) -> Vec<GpuView> {
    let mut entries: Vec<&Entry> = node.directory().iter().map(|(_, entry)| entry).collect();
    entries.sort_by_key(|entry| (entry.report().seniority, entry.report().node));
    let view = |entry: &Entry, gpu: &Gpu| {
        let (state, why) = gpu_state(entry, gpu);
        let lease = gpu.lease.as_ref();
        GpuView {
            node: entry.report().node.to_string(),
            node_name: entry.report().name.clone(),
            index: gpu.index,
            uuid: gpu.uuid.0.clone(),
            model: gpu.model.clone(),
            memory_bytes: gpu.memory_bytes,
            memory_free_bytes: gpu.memory_free_bytes,
            utilization: gpu.utilization,
            state: state.to_owned(),
            lease_seq: gpu.seq.0,
            job: lease.map(|lease| lease.job.to_string()),
            job_name: lease.map(|lease| lease.name.clone()),
            owner: lease.map(|lease| lease.owner.clone()),
            since: lease.map(|lease| utc(lease.since)),
            why,
        }
    };
    entries
        .into_iter()
        .flat_map(|entry| node.offered(entry.report()).iter().map(move |gpu| view(entry, gpu)))
        .collect()
}

/// What a GPU is, and why it is not free.
fn gpu_state(entry: &Entry, gpu: &Gpu) -> (&'static str, Option<String>) {
    if has_left(entry) {
        return ("left", Some("its node has left the mesh".into()));
    }
    if !entry.is_alive() {
        return ("unreachable", Some("its node does not answer".into()));
    }
    match (&gpu.health, &gpu.lease) {
        (GpuHealth::Quarantined(why), _) => ("quarantined", Some(why.clone())),
        (GpuHealth::Broken(why), _) => ("broken", Some(why.clone())),
        (GpuHealth::Usable, Some(lease)) => match lease.state {
            LeaseState::Starting => ("starting", None),
            LeaseState::Running => ("leased", None),
            LeaseState::Draining => {
                ("draining", Some("processes of its task are still ending".into()))
            }
        },
        (GpuHealth::Usable, None) if state(entry.report()) != "serving" => {
            ("closed", Some(format!("its node is {}", state(entry.report()))))
        }
        (GpuHealth::Usable, None) => ("free", None),
    }
}

/// Jobs of this home, and with `all` those that the directory shows elsewhere; the latest last.
pub(super) fn jobs(node: &Node, all: bool) -> Vec<JobView> {
    let mut records: Vec<&JobRecord> = node.jobs().iter().collect();
    records.sort_by_key(|record| (record.spec.submitted, record.spec.id));
    let mut views: Vec<JobView> = records.into_iter().map(|record| job(node, record)).collect();
    if all {
        views.extend(elsewhere(node));
    }
    views
}

/// Running jobs of other homes, as their nodes report them.
fn elsewhere(node: &Node) -> Vec<JobView> {
    let mut found: std::collections::BTreeMap<JobId, JobView> = std::collections::BTreeMap::new();
    for report in node.directory().alive() {
        let gpus = report.gpus.iter().filter_map(|gpu| Some((Some(gpu), gpu.lease.as_ref()?)));
        let gpuless = report.gpuless_tasks.iter().map(|lease| (None, lease));
        for (gpu, lease) in gpus.chain(gpuless).filter(|(_, lease)| lease.home != node.id()) {
            let view = found.entry(lease.job).or_insert_with(|| foreign(node, report, lease));
            if let Some(gpu) = gpu {
                view.gpus_needed += 1;
                view.gpus.push(gpu_words(gpu));
                view.gpu_uuids.push(gpu.uuid.0.clone());
            }
        }
    }
    found.into_values().collect()
}

fn foreign(node: &Node, report: &Report, lease: &LeaseView) -> JobView {
    JobView {
        id: lease.job.to_string(),
        name: lease.name.clone(),
        owner: lease.owner.clone(),
        state: match lease.state {
            LeaseState::Starting => "starting",
            LeaseState::Running | LeaseState::Draining => "running",
        }
        .to_owned(),
        reason: None,
        gpus_needed: 0,
        node: Some(report.node.to_string()),
        node_name: Some(report.name.clone()),
        gpus: Vec::new(),
        gpu_uuids: Vec::new(),
        attempt: lease.attempt.0,
        submitted: None,
        started: Some(utc(lease.since)),
        ended: None,
        exit_code: None,
        home: name(node, lease.home),
    }
}

/// One job of this home.
pub(super) fn job(node: &Node, record: &JobRecord) -> JobView {
    let spec = &record.spec;
    let named = |id| name(node, id);
    let directory = String::from_utf8_lossy(spec.command.chdir.as_ref().map_or(&[], |chdir| chdir));
    let mut view = JobView {
        id: spec.id.to_string(),
        name: spec.name.clone(),
        owner: spec.owner.clone(),
        state: String::new(),
        reason: None,
        gpus_needed: spec.need.gpus,
        node: None,
        node_name: None,
        gpus: Vec::new(),
        gpu_uuids: Vec::new(),
        attempt: record.task.attempt.0,
        submitted: Some(utc(spec.submitted)),
        started: None,
        ended: None,
        exit_code: None,
        home: name(node, node.id()),
    };
    let state = match &record.state {
        JobState::Waiting { reason } => {
            let refusals = refusals(node, spec.id, &directory);
            view.reason = Some(words::waiting(reason, &spec.need, &refusals, named));
            "waiting"
        }
        JobState::Starting { grant } => {
            view.node = Some(grant.node.to_string());
            view.node_name = Some(named(grant.node));
            view.reason = Some(format!("{} is being asked", named(grant.node)));
            "starting"
        }
        JobState::Running { place, since, connected } => {
            set_place(&mut view, node, place);
            view.started = Some(utc(*since));
            if !connected {
                view.reason = Some(silent(node, place.node));
            }
            "running"
        }
        JobState::Ended { outcome, place, at } => {
            if let Some(place) = place {
                set_place(&mut view, node, place);
            }
            view.ended = Some(utc(*at));
            view.exit_code = Some(outcome.exit_code());
            view.reason = Some(words::outcome(outcome));
            match outcome {
                Outcome::Lost { .. } => "lost",
                _ if record.cancelled => "cancelled",
                Outcome::Exited { code: 0 } => "succeeded",
                _ => "failed",
            }
        }
        JobState::Rejected { why, at } => {
            view.ended = Some(utc(*at));
            view.reason = Some(words::rejection(why, &spec.need, &directory, named));
            if record.cancelled { "cancelled" } else { "rejected" }
        }
    };
    view.state = state.to_owned();
    view
}

/// Which nodes have refused a job that waits, and why.
fn refusals(node: &Node, job: JobId, directory: &str) -> Vec<(String, String)> {
    let refusals = node.jobs().refusals(job);
    refusals.map(|(by, why)| (name(node, by), words::refusal(&why, directory))).collect()
}

/// Why there is no stream to the node of a running task.
fn silent(node: &Node, place: NodeId) -> String {
    let left = node.directory().get(place).is_some_and(has_left);
    let why = if left { "has left the mesh" } else { "does not answer" };
    format!("{} {why}; its task may run on there", name(node, place))
}

fn set_place(view: &mut JobView, node: &Node, place: &Place) {
    view.node = Some(place.node.to_string());
    view.node_name = Some(name(node, place.node));
    let report = node.directory().get(place.node).map(Entry::report);
    view.gpus = place
        .gpus
        .iter()
        .map(|uuid| match report.and_then(|report| report.gpu(uuid)) {
            Some(gpu) => gpu_words(gpu),
            None => uuid.0.clone(),
        })
        .collect();
    view.gpu_uuids = place.gpus.iter().map(|uuid| uuid.0.clone()).collect();
}

fn gpu_words(gpu: &Gpu) -> String {
    if gpu.index == u32::MAX {
        // Leased by a task that was found again; the driver has not been asked yet.
        return gpu.uuid.0.clone();
    }
    format!("{} ({})", gpu.index, gpu.model)
}

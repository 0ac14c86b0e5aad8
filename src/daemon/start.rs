//! Puts a daemon together, runs it, and takes it apart.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use libp2p::Multiaddr;
use rand::SeedableRng as _;
use rand::rngs::ChaCha12Rng;
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::admission::Judge;
use super::driver::Driver;
use super::found;
use super::hands::{Hands, Links, Streams};
use super::host::{Host, Table};
use super::http;
use super::inbox::{Inbox, Request};
use super::launch::Launcher;
use super::memory::memory;
use super::notes::Notes;
use super::own::Own;
use super::people;
use super::sieve::Sieve;
use crate::auth::{Passport, Tickets};
use crate::clock;
use crate::config::Config;
use crate::core::id::{MeshId, NodeId};
use crate::core::job;
use crate::core::node::{self, Node};
use crate::core::reporting::Facts;
use crate::core::signed::Key;
use crate::core::time::Duration;
use crate::core::{controller, election, ledger};
use crate::gpu::{Inventory, NoGpus, Nvml, Simulated};
use crate::net;
use crate::run::Tasks;
use crate::store::secret::Secret;
use crate::store::{Loaded, Store};

/// How often the machine is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Connections of one node.
const CONNECTIONS_MAX: u32 = 1_024;

/// A daemon that serves.
#[derive(Debug, Serialize)]
pub struct Ready {
    /// The node's id.
    pub node: String,
    /// The node's name.
    pub name: String,
    /// The mesh's id.
    pub mesh: String,
    /// Where the local API is.
    pub socket: String,
    /// Whether it is a member already: it founded the mesh, or has been admitted before.
    pub admitted: bool,
}

/// Runs a daemon until it is told to leave; calls `ready` when it serves.
///
/// # Errors
/// If it cannot start.
pub fn run(config: Config, ready: impl FnOnce(Ready)) -> Result<()> {
    // Everything that takes long has a thread of its own; a message that wakes the thread that is
    // awake anyway is the fastest. More threads only where there are many cores to stream from.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 4).clamp(1, 4))
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(serve(config, ready));
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

async fn serve(config: Config, ready: impl FnOnce(Ready)) -> Result<()> {
    let member = member(&config)?;
    let me = member.key.id();
    let name = config.name.clone().unwrap_or_else(host_name);
    let inventory = inventory(&config.gpus, &member)?;
    let judge = Arc::new(Judge::new(member.passport.clone(), Arc::clone(&member.store)));
    let (net, events) = network(&config, &member, Arc::clone(&judge))?;
    let (inbox, requests) = Inbox::new();
    let launcher = Arc::new(launcher(&config, me, &name, &inbox)?);
    let host = Host {
        inbox: inbox.clone(),
        table: launcher.table.clone(),
        launcher: Arc::clone(&launcher),
        grace: config.kill_grace,
    };
    let (links_in, links) = watch::channel(Links::default());
    let (changes_in, changes) = watch::channel(1);
    let streams = Streams { me, own: Arc::clone(&member.own), net, host, links };
    let listener = listen(&config)?;
    let mesh = member.mesh.to_string();
    let node = node(&config, &member, &name)?;
    let hands = Hands {
        streams: streams.clone(),
        store: member.store,
        inbox: inbox.clone(),
        name: name.clone(),
        homes: BTreeMap::new(),
        attachments: BTreeMap::new(),
    };
    let admitted = node.is_admitted();
    let mut notes = Notes::new(member.loaded.notes);
    if !admitted {
        // One that was seen by a member before is not sent away by another.
        let seen = member.loaded.credential.is_some_and(|known| known.endorsed.is_some());
        let inviters = match seen {
            true => BTreeSet::new(),
            false => inviters(&config, &member.loaded.peers),
        };
        notes.join(member.mesh, inviters);
    }
    let driver = Driver {
        node,
        hands,
        sieve: Sieve::new(judge),
        rng: ChaCha12Rng::from_seed(*found::random()?),
        mesh: mesh.clone(),
        started: clock::now(),
        notes,
        links: links_in,
        changes: changes_in,
        watchers: BTreeMap::new(),
        offers: BTreeMap::new(),
        offers_made: 0,
        kept: BTreeMap::new(),
        keep_at: None,
    };
    // In this order: tasks that live hold their GPUs before the GPUs are known to anybody, and are
    // known before any home can ask for them.
    launcher.recover().await;
    let driver = tokio::spawn(driver.run(events, requests));
    for record in member.loaded.jobs {
        inbox.job(job::Input::Recall(Box::new(record))).await;
    }
    tokio::spawn(look(inventory, inbox.clone()));
    let router = http::router(inbox.clone(), streams, changes, me);
    let server = tokio::spawn(http::serve(listener, router));
    let socket = config.paths.socket.display().to_string();
    ready(Ready { node: me.to_string(), name, mesh, socket, admitted });
    let end = wait_for_end(&inbox, driver).await;
    server.abort();
    // Another daemon may have taken the path already; then it is not ours to remove.
    let _ = std::fs::remove_file(&config.paths.socket);
    end
}

/// What a node is by its files.
struct Membership {
    mesh: MeshId,
    seed: Secret,
    key: Key,
    passport: Passport,
    own: Arc<Own>,
    store: Arc<Store>,
    loaded: Loaded,
}

/// Reads who this node is and where it belongs, and begins a new start of it.
fn member(config: &Config) -> Result<Membership> {
    let folder = config.paths.dir.display();
    let Some(mesh) = found::mesh(&config.paths)? else {
        bail!(
            "{folder} belongs to no mesh yet: found one with `gpuvine init`, or join one with \
             `gpuvine up --join TICKET`"
        );
    };
    let mesh: MeshId = mesh.parse()?;
    let seed = found::seed(&config.paths)?;
    let key = Key::from_seed(&seed);
    let (store, mut loaded) = Store::open(&config.paths.dir)?;
    let credential = loaded.credential.clone();
    let credential = credential
        .with_context(|| format!("the membership in {folder} is lost: join again with a ticket"))?;
    loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let tickets = Tickets::new(std::mem::take(&mut loaded.tickets));
    let mut passport = Passport::new(mesh, key.clone(), credential, tickets);
    // A member whose ticket has expired before anybody admitted it finds out by being refused.
    let own = Arc::new(Own::new(passport.own(clock::wall())));
    Ok(Membership { mesh, seed, key, passport, own, store: Arc::new(store), loaded })
}

fn network(
    config: &Config,
    member: &Membership,
    judge: Arc<Judge>,
) -> Result<(net::Handle, mpsc::Receiver<net::Event>)> {
    let parse = |address: &String| multiaddress("--listen", address);
    let started = net::start(net::Config {
        seed: *member.seed,
        mesh: member.mesh,
        listen: config.listen.iter().map(parse).collect::<Result<_>>()?,
        mdns: config.mdns,
        agent: format!("gpuvine/{}", env!("CARGO_PKG_VERSION")),
        connections_max: CONNECTIONS_MAX,
        admission: judge,
    });
    Ok(started?)
}

fn launcher(config: &Config, me: NodeId, name: &str, inbox: &Inbox) -> Result<Launcher> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Launcher {
        tasks: Tasks::open(config.paths.dir.join("tasks"), program)?,
        inbox: inbox.clone(),
        table: Table::default(),
        me,
        name: name.to_owned(),
        account: people::account(),
        output_max: config.output_max_bytes,
        grace: config.kill_grace,
    })
}

/// Until the driver ends: because a user said so, or a signal.
async fn wait_for_end(
    inbox: &Inbox,
    driver: tokio::task::JoinHandle<Result<(), String>>,
) -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::pin!(driver);
    tokio::select! {
        result = &mut driver => {
            return result.context("the driver failed")?.map_err(anyhow::Error::msg);
        }
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    tracing::info!("leaving");
    inbox.tell(Request::Leave).await;
    driver.await.context("the driver failed")?.map_err(anyhow::Error::msg)
}

/// The members that a ticket named: at an address with their id.
fn inviters(config: &Config, remembered: &[(NodeId, Vec<String>)]) -> BTreeSet<NodeId> {
    let named = config.peers.iter().filter_map(|peer| peer.rsplit_once("/p2p/")?.1.parse().ok());
    named.chain(remembered.iter().map(|(node, _)| *node)).collect()
}

fn node(config: &Config, member: &Membership, name: &str) -> Result<Node> {
    let Membership { key, own, loaded, .. } = member;
    let remembered = loaded.peers.iter().flat_map(|(node, addresses)| {
        addresses.iter().map(move |address| match address.contains("/p2p/") {
            true => address.clone(),
            false => format!("{address}/p2p/{node}"),
        })
    });
    let itself = format!("/p2p/{}", key.id());
    let mut bootstrap: Vec<String> = config.peers.iter().cloned().chain(remembered).collect();
    bootstrap.retain(|address| !address.ends_with(&itself));
    bootstrap.dedup();
    let mut settings = election::Config::default();
    if bootstrap.is_empty() {
        // Nobody to listen to.
        settings.listen = Duration::ZERO;
    }
    let (memory_bytes, _) = memory();
    let node = node::Config {
        key: key.clone(),
        incarnation: loaded.incarnation,
        term: loaded.term,
        seniority: loaded.seniority,
        rights: own.rights(),
        facts: Facts {
            name: name.to_owned(),
            labels: config.labels.clone(),
            priority: config.priority,
            cpus: std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
            memory_bytes,
            software: env!("CARGO_PKG_VERSION").to_owned(),
        },
        bootstrap,
        remembered: loaded.peers.clone(),
        seed: *found::random()?,
        election: settings,
        controller: controller::Config::default(),
        ledger: ledger::Config { tasks_max: config.tasks_max },
    };
    Ok(Node::new(node, clock::now()))
}

/// Whether what a user may mistype can be used, before anything is done with it.
///
/// # Errors
/// If an address or what GPUs to offer is not understood.
pub fn check(config: &Config) -> Result<()> {
    config.listen.iter().try_for_each(|address| multiaddress("--listen", address).map(drop))?;
    config.peers.iter().try_for_each(|address| multiaddress("--peer", address).map(drop))?;
    simulated(&config.gpus).map(drop)
}

fn multiaddress(option: &str, address: &str) -> Result<Multiaddr> {
    address.parse().map_err(|_| {
        anyhow!("{option} {address}: that is no multiaddress: write e.g. /ip4/192.0.2.7/tcp/47600")
    })
}

/// The GPUs to simulate, if any.
fn simulated(which: &str) -> Result<Option<Simulated>> {
    let told = || format!("--gpus {which}");
    match which.strip_prefix("sim:") {
        Some(spec) => Ok(Some(spec.parse().with_context(told)?)),
        None if matches!(which, "auto" | "none") => Ok(None),
        None if which.parse::<Simulated>().is_ok() => {
            bail!("--gpus {which}: GPUs that do not exist are written sim:{which}")
        }
        None => bail!(
            "--gpus {which}: write auto, none, or sim: and what to simulate, e.g. sim:4xA100-80G"
        ),
    }
}

/// Which GPUs the operator wants to offer.
fn inventory(which: &str, member: &Membership) -> Result<Box<dyn Inventory>> {
    if let Some(why) = member.own.no_gpus() {
        return Ok(Box::new(NoGpus { why: (which != "none").then_some(why) }));
    }
    Ok(match which {
        "auto" => {
            let mask = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            Box::new(Nvml::new(mask.as_deref(), memory))
        }
        other => match simulated(other)? {
            Some(simulated) => Box::new(simulated.of(member.key.id())),
            None => Box::new(NoGpus { why: None }),
        },
    })
}

/// Looks at the machine from time to time: drivers tell nobody when a GPU is lost.
async fn look(mut inventory: Box<dyn Inventory>, inbox: Inbox) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // A driver may take seconds to answer.
        let looked = tokio::task::spawn_blocking(move || {
            let reading = inventory.read();
            (inventory, reading)
        });
        let Ok((back, reading)) = looked.await else { return };
        inventory = back;
        inbox.tell(Request::Gpus(reading)).await;
        inbox.tell(Request::MemoryFree(memory().1)).await;
    }
}

/// The local API's socket: for this user, or as root for the socket's group too.
fn listen(config: &Config) -> Result<UnixListener> {
    let path = &config.paths.socket;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    // The database's lock says that no other daemon uses this folder; a socket that is there was
    // left by one that was killed.
    let stale = std::os::unix::net::UnixStream::connect(path).is_err();
    if !stale {
        bail!("another daemon answers at {}: name another socket with --socket", path.display());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

fn host_name() -> String {
    hostname::get().map_or_else(|_| "node".into(), |name| name.to_string_lossy().into_owned())
}

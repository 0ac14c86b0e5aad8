//! The network between machines: links that carry messages in order, as TCP does, over a medium
//! that is slow, cut, or lies.
//!
//! A link whose other end cannot be heard keeps what is sent until the cut heals, and is reset when
//! that takes longer than [`GIVE_UP`], as the kernel does by our settings.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::message::Message;
use gpuvine::core::time::{Duration, Instant};
use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;

use super::streams::{Frame, StreamId};

/// How long sent bytes may stay unacknowledged before a link is reset.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(10);

/// How long a dial waits for an answer.
pub(crate) const DIAL_FOR: Duration = Duration::from_secs(5);

/// Names one connection; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

/// What a link carries.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    Message(Message),
    Frame(StreamId, Frame),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The two machines.
    pub(crate) ends: [usize; 2],
    /// Whether each end knows of it and has not lost it.
    pub(crate) known: [bool; 2],
    /// When the last message of each direction arrives: no later one overtakes it.
    last: [Instant; 2],
    /// What waits for a cut to heal, for each direction.
    stalled: [Vec<Cargo>; 2],
    /// Since when something sent could not arrive or be acknowledged.
    pub(crate) stuck_since: Option<Instant>,
}

impl Link {
    /// Which end a machine is.
    pub(crate) fn end(&self, machine: usize) -> usize {
        usize::from(self.ends[1] == machine)
    }

    /// The machine at the other end.
    pub(crate) fn other(&self, machine: usize) -> usize {
        self.ends[1 - self.end(machine)]
    }
}

/// What a message takes at most: a link that is slower is no link.
const SLOWEST: Duration = Duration::from_secs(3);

/// All links, and what is wrong with the medium.
#[derive(Debug)]
pub(crate) struct Network {
    rng: ChaCha12Rng,
    latency: Duration,
    /// The chance that a message between cores is lost; the same that it comes twice, or late.
    pub(crate) lossy: f64,
    /// The chance that gossip does not reach a machine.
    pub(crate) gossip_loss: f64,
    cuts: BTreeSet<(usize, usize)>,
    /// Machines that neither send nor receive.
    pub(crate) silent: BTreeSet<usize>,
    slow: BTreeMap<(usize, usize), u32>,
    links: BTreeMap<LinkId, Link>,
    between: BTreeMap<(usize, usize), LinkId>,
    pub(crate) dialling: BTreeSet<(usize, usize)>,
    made: u64,
    /// Messages and bytes that were sent, for those who measure.
    pub(crate) messages: u64,
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Network {
    pub(crate) fn new(rng: ChaCha12Rng, latency: Duration) -> Self {
        Self {
            rng,
            latency,
            lossy: 0.0,
            gossip_loss: 0.0,
            cuts: BTreeSet::new(),
            silent: BTreeSet::new(),
            slow: BTreeMap::new(),
            links: BTreeMap::new(),
            between: BTreeMap::new(),
            dialling: BTreeSet::new(),
            made: 0,
            messages: 0,
        }
    }

    /// What one message takes now: the least, and a tail.
    pub(crate) fn delay(&mut self, from: usize, to: usize) -> Duration {
        let factor = self.slow.get(&pair(from, to)).copied().unwrap_or(1);
        let tail = self.rng.random_range(0.0f64..1.0).powi(4) * 4.0;
        (self.latency.mul_f64(1.0 + tail) * factor).min(SLOWEST)
    }

    /// Whether nothing gets from one machine to the other now.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.silent.contains(&from) || self.silent.contains(&to) || self.cuts.contains(&(from, to))
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        if from != to {
            self.cuts.insert((from, to));
        }
    }

    pub(crate) fn slow_down(&mut self, a: usize, b: usize, factor: u32) {
        self.slow.insert(pair(a, b), factor);
    }

    /// The medium is as new, but for machines that are silent.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.slow.clear();
    }

    /// The current link of two machines, if this one knows of it.
    pub(crate) fn link(&self, from: usize, to: usize) -> Option<LinkId> {
        let id = *self.between.get(&pair(from, to))?;
        let link = self.links.get(&id)?;
        link.known[link.end(from)].then_some(id)
    }

    /// The current link of two machines, whoever knows of it.
    pub(crate) fn any_link(&self, a: usize, b: usize) -> Option<LinkId> {
        self.between.get(&pair(a, b)).copied()
    }

    pub(crate) fn get(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// The links of one machine.
    pub(crate) fn of(&self, machine: usize) -> Vec<LinkId> {
        let has = |(a, b): &(usize, usize)| *a == machine || *b == machine;
        self.between.iter().filter(|(pair, _)| has(pair)).map(|(_, id)| *id).collect()
    }

    /// All links.
    pub(crate) fn all(&self) -> Vec<LinkId> {
        self.between.values().copied().collect()
    }

    /// A new connection, which neither end knows of yet.
    pub(crate) fn connect(&mut self, from: usize, to: usize, now: Instant) -> LinkId {
        self.made += 1;
        let id = LinkId(self.made);
        let link = Link {
            ends: [from, to],
            known: [false; 2],
            last: [now; 2],
            stalled: [Vec::new(), Vec::new()],
            stuck_since: None,
        };
        self.links.insert(id, link);
        self.between.insert(pair(from, to), id);
        id
    }

    /// An end knows of the connection.
    pub(crate) fn opened(&mut self, id: LinkId, machine: usize, now: Instant) {
        if let Some(link) = self.links.get_mut(&id) {
            let end = link.end(machine);
            link.known[end] = true;
            // What the other end says comes after that.
            link.last[1 - end] = link.last[1 - end].max(now);
        }
    }

    /// From now on nothing arrives on a link. Its two machines, if there was one.
    pub(crate) fn reset(&mut self, id: LinkId) -> Option<([usize; 2], [bool; 2])> {
        let link = self.links.remove(&id)?;
        let pair = pair(link.ends[0], link.ends[1]);
        if self.between.get(&pair) == Some(&id) {
            self.between.remove(&pair);
        }
        Some((link.ends, link.known))
    }

    /// Sends something; when it arrives: once, or by a fault not at all or twice. `None` if the
    /// link is gone, or while it is cut.
    pub(crate) fn send(
        &mut self,
        id: LinkId,
        from: usize,
        cargo: &Cargo,
        now: Instant,
    ) -> Option<Vec<Instant>> {
        let to = self.links.get(&id)?.other(from);
        let blocked = self.is_cut(from, to);
        let unheard = blocked || self.is_cut(to, from);
        let delay = self.delay(from, to);
        let fate = match cargo {
            Cargo::Message(_) if self.lossy > 0.0 => self.rng.random_range(0.0..1.0) / self.lossy,
            _ => 9.0,
        };
        let link = self.links.get_mut(&id)?;
        let direction = link.end(from);
        self.messages += 1;
        if unheard && link.stuck_since.is_none() {
            link.stuck_since = Some(now);
        }
        if blocked {
            link.stalled[direction].push(cargo.clone());
            return None;
        }
        let at = (now + delay).max(link.last[direction]);
        Some(match fate {
            fate if fate < 1.0 => Vec::new(),
            fate if fate < 2.0 => vec![at, at + delay],
            fate if fate < 3.0 => vec![at + delay * 8],
            _ => {
                link.last[direction] = at;
                vec![at]
            }
        })
    }

    /// What was stalled on links that are free again: link, sender, cargo.
    pub(crate) fn unstall(&mut self) -> Vec<(LinkId, usize, Cargo)> {
        let mut freed = Vec::new();
        let mut links = std::mem::take(&mut self.links);
        for (id, link) in &mut links {
            let [a, b] = link.ends;
            let cuts = [self.is_cut(a, b), self.is_cut(b, a)];
            if !cuts[0] && !cuts[1] {
                link.stuck_since = None;
            }
            for (direction, cargo) in link.stalled.iter_mut().enumerate() {
                if !cuts[direction] {
                    let from = link.ends[direction];
                    freed.extend(cargo.drain(..).map(|cargo| (*id, from, cargo)));
                }
            }
        }
        self.links = links;
        freed
    }

    /// The machines that gossip of one of them reaches now, each after some hops.
    pub(crate) fn reach(&mut self, from: usize) -> Vec<(usize, Duration)> {
        let mut near: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for ((a, b), id) in &self.between {
            if self.links.get(id).is_some_and(|link| link.known == [true; 2]) {
                near.entry(*a).or_default().push(*b);
                near.entry(*b).or_default().push(*a);
            }
        }
        let mut reached = BTreeMap::from([(from, Duration::ZERO)]);
        let mut edge = vec![from];
        while let Some(at) = edge.pop() {
            for &next in near.get(&at).into_iter().flatten() {
                if !reached.contains_key(&next) && !self.is_cut(at, next) {
                    let delay = reached[&at] + self.delay(at, next);
                    reached.insert(next, delay);
                    edge.insert(0, next);
                }
            }
        }
        reached.remove(&from);
        let loss = self.gossip_loss;
        reached.into_iter().filter(|_| loss == 0.0 || !self.rng.random_bool(loss)).collect()
    }
}

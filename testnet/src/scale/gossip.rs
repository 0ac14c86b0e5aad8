//! A model of gossipsub: how a message spreads over the links, and what that costs.
//!
//! As in gossipsub with its default settings each machine has six of its links in its mesh; a
//! machine passes a message on to all of its mesh but where it came from, so that most arrive
//! several times. What is decided by chance there (who is in whose mesh) is decided by a hash here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gpuvine::core::time::Duration;
use rand::RngExt as _;
use rand::rngs::ChaCha12Rng;

/// Links of a machine over which it passes messages on.
const DEGREE: usize = 6;

/// What a machine takes to pass a message on: measured with libp2p, signature and duplicates
/// included.
const HANDLING: Duration = Duration::from_micros(500);

/// Who passes messages on to whom.
#[derive(Debug)]
pub(super) struct Overlay {
    peers: Vec<Vec<usize>>,
}

/// How one message spreads.
#[derive(Debug)]
pub(super) struct Spread {
    /// The machines that it reaches, and after what time.
    pub(super) reached: Vec<(usize, Duration)>,
    /// How often it is sent over a link.
    pub(super) sent: u64,
}

impl Overlay {
    /// The overlay of machines that are up or not, and have links to these.
    pub(super) fn of<L: Iterator<Item = usize>>(machines: impl Iterator<Item = (bool, L)>) -> Self {
        let (up, links): (Vec<bool>, Vec<Vec<usize>>) =
            machines.map(|(up, links)| (up, links.collect::<Vec<usize>>())).unzip();
        let mut peers: Vec<Vec<usize>> = vec![Vec::new(); up.len()];
        for (at, links) in links.iter().enumerate().filter(|(at, _)| up[*at]) {
            let there = links.iter().copied().filter(|peer| up[*peer]);
            let mut order: Vec<(u64, usize)> = there.map(|peer| (mix(at, peer), peer)).collect();
            order.sort_unstable();
            for (_, peer) in order.into_iter().take(DEGREE) {
                peers[at].push(peer);
                peers[peer].push(at);
            }
        }
        for list in &mut peers {
            list.sort_unstable();
            list.dedup();
        }
        Self { peers }
    }

    /// A message begins its way here.
    pub(super) fn spread(&self, from: usize, latency: Duration, rng: &mut ChaCha12Rng) -> Spread {
        let mut best = vec![u64::MAX; self.peers.len()];
        let mut heap = BinaryHeap::from([Reverse((0, from))]);
        let mut spread = Spread { reached: Vec::new(), sent: 0 };
        best[from] = 0;
        while let Some(Reverse((after, at))) = heap.pop() {
            if after > best[at] {
                continue;
            }
            let peers = &self.peers[at];
            spread.sent += peers.len() as u64;
            if at != from {
                spread.sent -= 1;
                spread.reached.push((at, Duration::from_nanos(after)));
            }
            for &next in peers {
                let tail = rng.random_range(0.0f64..1.0).powi(4) * 4.0;
                let hop = latency.mul_f64(1.0 + tail) + HANDLING;
                let there = after + hop.as_nanos() as u64;
                if there < best[next] {
                    best[next] = there;
                    heap.push(Reverse((there, next)));
                }
            }
        }
        spread
    }
}

/// The same for both ends: gossipsub's mesh is mutual.
fn mix(a: usize, b: usize) -> u64 {
    let pair = (a.min(b) as u64) << 32 | a.max(b) as u64;
    let mixed = (pair ^ pair >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_message_reaches_all_that_are_up_and_nobody_twice() {
        let ring = |at: usize| [(at + 99) % 100, (at + 1) % 100, (at + 7) % 100, (at + 93) % 100];
        let overlay = Overlay::of((0..100).map(|at| (at != 5, ring(at).into_iter())));
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let spread = overlay.spread(0, Duration::from_millis(1), &mut rng);
        let mut reached: Vec<usize> = spread.reached.iter().map(|(at, _)| *at).collect();
        reached.sort_unstable();
        assert_eq!(reached, (1..100).filter(|at| *at != 5).collect::<Vec<_>>());
        assert!(spread.sent >= 98);
    }
}

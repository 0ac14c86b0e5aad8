//! Suspicion: who may refute, for how long, and what becomes of those who do not.

use super::datagram::{Kind, Rumour};
use super::{Effect, FEW, Membership, State, rumour_of};
use crate::core::id::NodeId;
use crate::core::outbox::Outbox;
use crate::core::time::{Duration, Instant};

/// How long a suspect has to refute: so long, and so much more for every tenfold of the mesh. It
/// must hear of it and be heard, which takes a telling for every doubling and a half, twice.
const SUSPECT_FOR: Duration = Duration::from_secs(2);
const SUSPECT_FOR_TENFOLD: Duration = Duration::from_secs(1);

/// A member that may refute.
#[derive(Debug)]
pub(super) struct Suspicion {
    pub(super) until: Instant,
    /// The life that is suspected.
    pub(super) life: u64,
    /// Whether this node has found out itself, or has asked others in vain what became of it. One
    /// that has only heard of a suspicion may have missed how that ended.
    pub(super) certain: bool,
}

impl Membership {
    /// A hint, not a verdict: the member becomes a suspect, everybody is told, and it can refute.
    pub(super) fn on_link_lost(&mut self, node: NodeId, now: Instant) {
        if self.parting.remove(&node).is_some_and(|until| until > now) {
            return;
        }
        let Some(member) = self.roll.get(node).filter(|member| member.state == State::Alive) else {
            return;
        };
        let suspect = Rumour { state: State::Suspect, ..rumour_of(member) };
        // Nothing but a suspicion: nobody comes to life or dies of it.
        self.suspect(suspect, now, &mut Outbox::new());
        self.tell_at = Some(now);
    }

    /// A member was heard of from itself. If it is suspected, this is its refutation, for it may
    /// never learn of the suspicion: a datagram is lost where there is no link.
    pub(super) fn speak_for(&mut self, node: NodeId, now: Instant, out: &mut Outbox<Effect>) {
        if let Some(member) = self.roll.get(node).filter(|member| member.state == State::Suspect) {
            let life = member.life.saturating_add(1);
            self.hear(Rumour { node, life, state: State::Alive }, now, out);
        }
    }

    /// Suspects have had their time.
    pub(super) fn conclude(&mut self, now: Instant, out: &mut Outbox<Effect>) {
        let due = self.suspects.iter().filter(|(_, suspicion)| suspicion.until <= now);
        let due: Vec<(NodeId, u64, bool)> =
            due.map(|(node, suspicion)| (*node, suspicion.life, suspicion.certain)).collect();
        for (node, life, certain) in due {
            if certain {
                self.suspects.remove(&node);
                self.hear(Rumour { node, life, state: State::Down }, now, out);
                continue;
            }
            let until = now + self.suspect_for();
            self.suspects.insert(node, Suspicion { until, life, certain: true });
            for other in self.some(FEW, Some(node)) {
                let suspect = Rumour { node, life, state: State::Suspect };
                self.send(other, Kind::Rumours, vec![suspect], out);
            }
        }
    }

    /// This node has found out itself.
    pub(super) fn suspect(&mut self, suspect: Rumour, now: Instant, out: &mut Outbox<Effect>) {
        self.hear(suspect, now, out);
        let until = now + self.suspect_for();
        let known = self.suspects.get_mut(&suspect.node);
        if let Some(suspicion) = known.filter(|suspicion| suspicion.life == suspect.life) {
            suspicion.certain = true;
            suspicion.until = suspicion.until.min(until);
        }
    }

    /// Patience grows with the logarithm of the mesh.
    pub(super) fn suspect_for(&self) -> Duration {
        let tenfolds = ((self.living.count() + 1) as f64).log10().max(1.0);
        SUSPECT_FOR + SUSPECT_FOR_TENFOLD.mul_f64(tenfolds)
    }
}

//! What the operator should know: what was found at the start, who was refused, and, for a node on
//! its way into the mesh, whom it has tried and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use libp2p::Multiaddr;

use crate::core::id::{MeshId, NodeId};
use crate::net::REFUSED_THERE;

/// Refusals remembered, each of another peer or place; and addresses tried. The latest few.
const REFUSALS_MAX: usize = 10;
const TRIED_MAX: usize = 8;

/// Notes of one daemon.
#[derive(Debug, Default)]
pub(super) struct Notes {
    start: Vec<String>,
    refusals: Vec<(String, String)>,
    joining: Option<Joining>,
}

/// A node that no member has ever admitted.
#[derive(Debug)]
struct Joining {
    mesh: MeshId,
    /// Those whom its ticket names: their refusal is final.
    inviters: BTreeSet<NodeId>,
    /// Where it looked for members, and why it was not admitted there.
    tried: BTreeMap<String, String>,
}

impl Notes {
    /// What was found at the start.
    pub(super) fn new(start: Vec<String>) -> Self {
        Self { start, ..Self::default() }
    }

    /// The node has never been admitted; its ticket names these members.
    pub(super) fn join(&mut self, mesh: MeshId, inviters: BTreeSet<NodeId>) {
        self.joining = Some(Joining { mesh, inviters, tried: BTreeMap::new() });
    }

    /// It has been admitted; whether that is news.
    pub(super) fn joined(&mut self) -> bool {
        self.joining.take().is_some()
    }

    /// Why the node is no member yet, if it is none.
    pub(super) fn not_admitted(&self) -> Option<String> {
        let Joining { mesh, tried, .. } = self.joining.as_ref()?;
        let start = format!("not yet admitted to mesh {mesh}");
        if tried.is_empty() {
            return Some(format!(
                "{start}: no member has been found yet (--peer MULTIADDR names one)"
            ));
        }
        let tried: Vec<String> = tried.iter().map(|(at, why)| format!("{at}: {why}")).collect();
        Some(format!("{start}: tried {}; trying on", tried.join(", ")))
    }

    /// A dial has failed. What is to be told, if it is news.
    pub(super) fn failed(&mut self, tried: Vec<(Multiaddr, String)>) -> Option<String> {
        let before = self.not_admitted();
        let joining = self.joining.as_mut()?;
        for (address, why) in tried {
            let address = address.to_string();
            if joining.tried.len() < TRIED_MAX || joining.tried.contains_key(&address) {
                joining.tried.insert(address, why);
            }
        }
        self.not_admitted().filter(|now| Some(now) != before.as_ref())
    }

    /// A peer was refused, here or there.
    ///
    /// # Errors
    /// If that is the end of a node that wants to join: the sentence for its user.
    pub(super) fn refused(
        &mut self,
        peer: Option<NodeId>,
        address: &Multiaddr,
        why: &str,
    ) -> Result<(), String> {
        let joining = self.joining.as_ref().filter(|joining| {
            peer.is_some_and(|peer| joining.inviters.contains(&peer))
                && why.starts_with(REFUSED_THERE)
        });
        if let Some(Joining { mesh, .. }) = joining {
            return Err(format!("not admitted to mesh {mesh}: {address}: {why}"));
        }
        // A port of its own for each connection of a stranger: its id names it better.
        let who = peer.map_or_else(|| address.to_string(), NodeId::short);
        self.refusals.retain(|(known, _)| *known != who);
        self.refusals.push((who, why.to_owned()));
        if self.refusals.len() > REFUSALS_MAX {
            self.refusals.remove(0);
        }
        Ok(())
    }

    /// All of them, the most important first.
    pub(super) fn all(&self) -> impl Iterator<Item = String> {
        let refusals = self.refusals.iter().map(|(who, why)| format!("{who}: {why}"));
        self.start.iter().cloned().chain(self.not_admitted()).chain(refusals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::report::testing::node;

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    fn joining() -> Notes {
        let mut notes = Notes::new(vec!["a database was set aside".into()]);
        notes.join(MeshId([7; 32]), BTreeSet::from([node(1)]));
        notes
    }

    #[test]
    fn a_node_that_joins_says_whom_it_tried_and_only_news_is_told() {
        let mut notes = joining();
        assert!(notes.not_admitted().unwrap().contains("no member has been found yet"));
        let tried = || vec![(address("/ip4/10.0.0.1/tcp/1"), "Connection refused".to_owned())];
        let told = notes.failed(tried()).unwrap();
        assert!(told.contains("tried /ip4/10.0.0.1/tcp/1: Connection refused"), "{told}");
        assert_eq!(notes.failed(tried()), None);
        assert!(notes.joined());
        assert_eq!((notes.failed(tried()), notes.not_admitted()), (None, None));
        assert_eq!(notes.all().count(), 1);
    }

    #[test]
    fn only_the_refusal_of_a_member_that_the_ticket_names_is_final() {
        let at = address("/ip4/10.0.0.1/tcp/1");
        let there = format!("{REFUSED_THERE}: its ticket expired");
        let mut notes = joining();
        assert!(notes.refused(Some(node(2)), &at, &there).is_ok());
        assert!(notes.refused(Some(node(1)), &at, "refused: it belongs to mesh x").is_ok());
        let told = notes.refused(Some(node(1)), &at, &there).unwrap_err();
        assert!(told.contains("its ticket expired"), "{told}");
        notes.joined();
        assert!(notes.refused(Some(node(1)), &at, &there).is_ok());
    }

    #[test]
    fn strangers_do_not_push_out_what_was_found_at_the_start() {
        let mut notes = joining();
        for number in 0..50 {
            let at = address(&format!("/ip4/10.0.0.1/tcp/{number}"));
            assert!(notes.refused(None, &at, "refused").is_ok());
            assert!(notes.refused(Some(node(9)), &at, &format!("refused at {number}")).is_ok());
        }
        let all: Vec<String> = notes.all().collect();
        assert_eq!((all.len(), all[0].as_str()), (12, "a database was set aside"));
        let same = all.iter().filter(|note| note.contains(&node(9).short())).count();
        assert_eq!(same, 1);
    }
}

//! Terms only grow: a node never follows a lower reign than before, over restarts never claims a
//! term twice, and its highest term survives.

use std::collections::{BTreeMap, BTreeSet};

use gpuvine::core::id::{Reign, Term};

use super::{Fact, Invariant};

#[derive(Debug, Default)]
pub(super) struct Rule {
    followed: BTreeMap<(usize, u32), Reign>,
    claimed: BTreeMap<usize, (Term, u32)>,
    /// Machines that share their identity with another, whose claims they take for their own.
    twins: BTreeSet<usize>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "terms_only_grow"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Boots { machine, old: true } => {
                self.claimed.remove(machine);
            }
            Fact::Copied { original, copy } => self.twins.extend([*original, *copy]),
            Fact::Turn { machine, life, node } => {
                let Some(reign) = node.election().reign() else { return Ok(()) };
                let before = self.followed.insert((*machine, *life), reign);
                if before == Some(reign) {
                    return Ok(());
                }
                if before.is_some_and(|before| before > reign) {
                    return Err(format!("n{machine} follows {reign:?} after {before:?}"));
                }
                if reign.controller == node.id() && !self.twins.contains(machine) {
                    let before = self.claimed.insert(*machine, (reign.term, *life));
                    if let Some((term, _)) = before.filter(|(term, _)| *term >= reign.term) {
                        return Err(format!("n{machine} claims {} after {term}", reign.term));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

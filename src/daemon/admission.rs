//! The gate's judgement: a passport, the clock, and the store for what becomes of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::{AuthError, Member, Passport, Roles};
use crate::clock;
use crate::core::id::NodeId;
use crate::core::rights::Rights;
use crate::net::{Admission, Admitted};
use crate::store::{Keep, Store};

/// Judges by the mesh's tokens, and keeps a better credential when one is given, and who has used
/// which ticket.
#[derive(Debug)]
pub(super) struct Judge {
    passport: Mutex<Passport>,
    store: Arc<Store>,
}

impl Judge {
    pub(super) fn new(passport: Passport, store: Arc<Store>) -> Self {
        Self { passport: Mutex::new(passport), store }
    }

    /// What this node shows of itself to those with whom it has no link.
    pub(super) fn proof(&self) -> Vec<u8> {
        self.passport().hello()
    }

    /// What somebody may do whose proof has come by another way than its own link.
    ///
    /// # Errors
    /// If it is not a member.
    pub(super) fn recognize(&self, peer: NodeId, proof: &[u8]) -> Result<Rights, String> {
        let member = self.judge(|passport| passport.verify(peer, proof, clock::wall()))?;
        Ok(rights(member.roles))
    }

    /// Changes when somebody who was let in before would not be now.
    pub(super) fn evicted(&self) -> u64 {
        self.passport().evicted()
    }

    /// Asks the passport, and keeps what it has learnt.
    fn judge<T>(
        &self,
        ask: impl FnOnce(&mut Passport) -> Result<T, AuthError>,
    ) -> Result<T, String> {
        let mut passport = self.passport();
        let verdict = ask(&mut passport);
        // Not waited for: should it be lost, those who came first can still prove it themselves.
        for (ticket, used) in passport.take_changes() {
            self.store.keep(Keep::Ticket(ticket, used), None::<fn()>);
        }
        verdict.map_err(|error| sentence(&error))
    }

    fn passport(&self) -> MutexGuard<'_, Passport> {
        // Nothing under the lock can panic half way.
        self.passport.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission for Judge {
    fn hello(&self) -> Vec<u8> {
        self.passport().hello()
    }

    fn welcome(&self, peer: NodeId, word: &[u8]) -> Result<(Admitted, Vec<u8>), String> {
        let welcome = self.judge(|passport| passport.welcome(peer, word, clock::wall()));
        welcome.map(|(member, word)| (admitted(member), word))
    }

    fn accept(&self, peer: NodeId, word: &[u8]) -> Result<Admitted, String> {
        let (member, better) = self.judge(|passport| passport.accept(peer, word, clock::wall()))?;
        if let Some(better) = better {
            self.store.keep(Keep::Credential(Box::new(better)), None::<fn()>);
        }
        Ok(admitted(member))
    }
}

/// What matters of roles to the core.
pub(super) fn rights(roles: Roles) -> Rights {
    Rights { node: roles.node, submit: roles.submit }
}

fn admitted(member: Member) -> Admitted {
    let Member { roles, user, .. } = member;
    Admitted { rights: rights(roles), is_admin: roles.admin, user }
}

/// An error with its causes, in one line.
pub(super) fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

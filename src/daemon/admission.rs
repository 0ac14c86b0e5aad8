//! The gate's judgement: a passport, the clock, and the store for what becomes of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::{AuthError, Member, Passport, Roles};
use crate::clock;
use crate::core::id::NodeId;
use crate::core::message::Message;
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

    /// What this node shows of itself to one with whom it has no link.
    pub(super) fn proof(&self) -> Vec<u8> {
        self.passport().hello()
    }

    /// Who speaks in a message that was relayed to this node, and what that member may do, by the
    /// proof beside its word: it has shown nothing on a link. Nothing for all other messages.
    ///
    /// # Errors
    /// If whoever signed it is not a member.
    pub(super) fn speaker(
        &self,
        me: NodeId,
        message: &Message,
    ) -> Result<Option<(NodeId, Rights)>, String> {
        let Message::Relay(relayed, proof) = message else { return Ok(None) };
        if relayed.value().to != me {
            return Ok(None);
        }
        let peer = relayed.signer();
        let member = self.judge(|passport| passport.verify(peer, proof, clock::wall()))?;
        Ok(Some((peer, rights(member.roles))))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Credential, Grantee, MeshKey, Tickets};
    use crate::core::control::{self, Relayed};
    use crate::core::id::{Attempt, JobId};
    use crate::core::signed::Key;
    use crate::core::task::TaskId;

    fn key(number: u8) -> Key {
        Key::from_seed(&[number; 32])
    }

    fn judge(folder: &tempfile::TempDir, number: u8, roles: Roles) -> Judge {
        let mesh = MeshKey::from_seed([1; 32]);
        let grantee = Grantee { roles, user: None, expires: None, uses: 1 };
        let token = mesh.mint(&grantee).unwrap().bind(mesh.mesh(), key(number).id()).unwrap();
        let credential = Credential { token, endorsed: None };
        let passport = Passport::new(mesh.mesh(), key(number), credential, Tickets::default());
        Judge::new(passport, Arc::new(Store::open(folder.path()).unwrap().0))
    }

    /// A member that may not submit could ask in the name of keys that it has made up.
    #[test]
    fn whoever_is_relayed_is_known_by_its_own_proof_and_by_no_other() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let me = judge(&one, 1, Roles::ALL);
        let guest = judge(&two, 2, Roles { submit: false, ..Roles::ALL });
        let message = |signer: &Key, to: &Key| {
            let task = TaskId { job: JobId::from_bits(1), attempt: Attempt(1) };
            let message = control::Message::Withdraw { task };
            let relayed = signer.sign(Relayed { to: to.id(), message });
            Message::Relay(relayed, guest.proof().into())
        };
        let known = me.speaker(key(1).id(), &message(&key(2), &key(1)));
        let rights = Rights { node: true, submit: false };
        assert_eq!(known, Ok(Some((key(2).id(), rights))));
        let made_up = me.speaker(key(1).id(), &message(&key(3), &key(1)));
        assert!(made_up.unwrap_err().contains("each node needs a ticket of its own"));
        // What is on its way to somebody else is that one's to judge.
        assert_eq!(me.speaker(key(1).id(), &message(&key(3), &key(4))), Ok(None));
    }
}

//! The gate's judgement: a passport, the clock, and the store for what becomes of it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::auth::{Member, Passport};
use crate::clock;
use crate::core::id::NodeId;
use crate::net::{Admission, Admitted};
use crate::store::{Keep, Store};

/// Judges by the mesh's tokens, and keeps a better credential when one is given.
#[derive(Debug)]
pub(super) struct Judge {
    passport: Mutex<Passport>,
    store: Arc<Store>,
}

impl Judge {
    pub(super) fn new(passport: Passport, store: Arc<Store>) -> Self {
        Self { passport: Mutex::new(passport), store }
    }

    fn passport(&self) -> std::sync::MutexGuard<'_, Passport> {
        // Nothing under the lock can panic half way.
        self.passport.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission for Judge {
    fn hello(&self) -> Vec<u8> {
        self.passport().hello()
    }

    fn welcome(&self, peer: NodeId, word: &[u8]) -> Result<Vec<u8>, String> {
        let welcome = self.passport().welcome(peer, word, clock::wall());
        welcome.map_err(|error| sentence(&error))
    }

    fn verify(&self, peer: NodeId, word: &[u8]) -> Result<Admitted, String> {
        let member = self.passport().verify(peer, word, clock::wall());
        member.map(admitted).map_err(|error| sentence(&error))
    }

    fn accept(&self, peer: NodeId, word: &[u8]) -> Result<Admitted, String> {
        let accepted = self.passport().accept(peer, word, clock::wall());
        let (member, better) = accepted.map_err(|error| sentence(&error))?;
        if let Some(better) = better {
            self.store.keep(Keep::Credential(Box::new(better)), None::<fn()>);
        }
        Ok(admitted(member))
    }
}

fn admitted(member: Member) -> Admitted {
    Admitted { may_submit: member.roles.submit, is_admin: member.roles.admin, user: member.user }
}

/// An error with its causes, in one line.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

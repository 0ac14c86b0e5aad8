//! What two nodes say to each other before anything else, and what each makes of it.

use serde::{Deserialize, Serialize};

use super::credential::{AuthError, Credential, Endorsed, Endorsement, Member, verify};
use super::tickets::{TicketChange, Tickets};
use crate::core::id::{MeshId, NodeId};
use crate::core::signed::{Key, Signed};
use crate::core::time::WallTime;

/// A node's own membership, and its judgement of others'.
#[derive(Clone, Debug)]
pub struct Passport {
    mesh: MeshId,
    key: Key,
    credential: Credential,
    tickets: Tickets,
}

/// The first word of both sides.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    mesh: MeshId,
    credential: Credential,
    /// In the answer: the answerer's endorsement of the other, if that needs one.
    endorsement: Option<Signed<Endorsement>>,
}

impl Passport {
    /// The passport of the node with this key, and what it remembers of tickets.
    pub fn new(mesh: MeshId, key: Key, credential: Credential, tickets: Tickets) -> Self {
        Self { mesh, key, credential, tickets }
    }

    /// The mesh that it is for.
    pub fn mesh(&self) -> MeshId {
        self.mesh
    }

    /// The node's credential.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Who this node is, by its own credential. Its ticket is used from now on: another machine
    /// that comes with a copy of it is refused here too.
    ///
    /// # Errors
    /// If others will refuse it.
    pub fn own(&mut self, now: WallTime) -> Result<Member, AuthError> {
        let member = verify(&self.credential, self.mesh, self.key.id(), now)?;
        self.admit(&member, now)?;
        Ok(member)
    }

    /// What this node has learnt of tickets since this was asked last, to be kept.
    pub fn take_changes(&mut self) -> Vec<TicketChange> {
        self.tickets.take_changes()
    }

    /// How many machines have been let in here, and were not the first with their ticket: what is
    /// known of others is to be looked at again when that changes.
    pub fn evicted(&self) -> u64 {
        self.tickets.evicted()
    }

    /// What the dialler says.
    pub fn hello(&self) -> Vec<u8> {
        self.encode(None)
    }

    /// What the other side's word is worth.
    ///
    /// # Errors
    /// If the peer is not a member.
    pub fn verify(
        &mut self,
        peer: NodeId,
        word: &[u8],
        now: WallTime,
    ) -> Result<Member, AuthError> {
        self.judge(peer, &decode(word)?, now)
    }

    /// What a dialler's word is worth, and what the listener answers if that is a member's.
    ///
    /// # Errors
    /// If the peer is not a member.
    pub fn welcome(
        &mut self,
        peer: NodeId,
        word: &[u8],
        now: WallTime,
    ) -> Result<(Member, Vec<u8>), AuthError> {
        let hello = decode(word)?;
        let mut member = self.judge(peer, &hello, now)?;
        let theirs = hello.credential;
        let roles = self.credential.token.claims(self.mesh)?.roles;
        let wanted = theirs.wants(self.mesh, self.credential.chain() + 1)?;
        let may_endorse = roles.node || roles.admin;
        let shown = member.shown.as_mut().filter(|_| wanted && may_endorse);
        let endorsement = shown.map(|shown| {
            // What was endorsed before is endorsed for the same time, not for now.
            let at = *shown.endorsed.get_or_insert(now);
            self.key.sign(Endorsement { mesh: self.mesh, peer, token: theirs.token.hash(), at })
        });
        self.admit(&member, now)?;
        Ok((member, self.encode(endorsement)))
    }

    /// What the listener's answer is worth. If it carries an endorsement that makes this node's
    /// credential better, the better one is answered, to be kept.
    ///
    /// # Errors
    /// If the listener is not a member.
    pub fn accept(
        &mut self,
        peer: NodeId,
        word: &[u8],
        now: WallTime,
    ) -> Result<(Member, Option<Credential>), AuthError> {
        let hello = decode(word)?;
        let member = self.judge(peer, &hello, now)?;
        let Some(endorsement) = hello.endorsement else { return Ok((member, None)) };
        let by = Box::new(hello.credential);
        let better = Credential {
            token: self.credential.token.clone(),
            endorsed: Some(Endorsed { endorsement, by }),
        };
        // An endorsement of something else, or by one who may not, is simply not kept.
        let good = self.credential.wants(self.mesh, better.chain())?
            && verify(&better, self.mesh, self.key.id(), now).is_ok();
        if !good {
            return Ok((member, None));
        }
        self.credential = better.clone();
        // Should another machine have been first, the others will say so.
        let _ = self.own(now);
        Ok((member, Some(better)))
    }

    fn judge(&mut self, peer: NodeId, hello: &Hello, now: WallTime) -> Result<Member, AuthError> {
        if hello.mesh != self.mesh {
            return Err(AuthError::OtherMesh { theirs: hello.mesh, ours: self.mesh });
        }
        let member = verify(&hello.credential, self.mesh, peer, now)?;
        self.admit(&member, now)?;
        Ok(member)
    }

    /// Whether a member is among those that its ticket is for.
    fn admit(&mut self, member: &Member, now: WallTime) -> Result<(), AuthError> {
        match &member.shown {
            Some(shown) => self.tickets.admit(member.node, shown, now),
            None => Ok(()),
        }
    }

    fn encode(&self, endorsement: Option<Signed<Endorsement>>) -> Vec<u8> {
        let hello = Hello { mesh: self.mesh, credential: self.credential.clone(), endorsement };
        let mut bytes = Vec::new();
        // Writing to a vector cannot fail, and no part of it has a `Serialize` that refuses.
        #[expect(clippy::expect_used, reason = "see above")]
        ciborium::into_writer(&hello, &mut bytes).expect("a hello can be encoded");
        bytes
    }
}

/// A chain of eight credentials within credentials is the deepest that makes sense.
fn decode(word: &[u8]) -> Result<Hello, AuthError> {
    Ok(ciborium::de::from_reader_with_recursion_limit(word, 128)?)
}

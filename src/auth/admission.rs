//! What two nodes say to each other before anything else, and what each makes of it.

use serde::{Deserialize, Serialize};

use super::credential::{AuthError, Credential, Endorsed, Endorsement, Member, verify};
use crate::core::id::{MeshId, NodeId};
use crate::core::signed::{Key, Signed};
use crate::core::time::WallTime;

/// A node's own membership, and its judgement of others'.
#[derive(Clone, Debug)]
pub struct Passport {
    mesh: MeshId,
    key: Key,
    credential: Credential,
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
    /// The passport of the node with this key.
    pub fn new(mesh: MeshId, key: Key, credential: Credential) -> Self {
        Self { mesh, key, credential }
    }

    /// The mesh that it is for.
    pub fn mesh(&self) -> MeshId {
        self.mesh
    }

    /// The node's credential.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// What the dialler says.
    pub fn hello(&self) -> Vec<u8> {
        self.encode(None)
    }

    /// What the other side's word is worth.
    ///
    /// # Errors
    /// If the peer is not a member.
    pub fn verify(&self, peer: NodeId, word: &[u8], now: WallTime) -> Result<Member, AuthError> {
        self.judge(peer, &decode(word)?, now)
    }

    /// What the listener answers to a dialler that it has recognized.
    ///
    /// # Errors
    /// If the dialler's word cannot be read.
    pub fn welcome(&self, peer: NodeId, word: &[u8], now: WallTime) -> Result<Vec<u8>, AuthError> {
        let theirs = decode(word)?.credential;
        let roles = self.credential.token.claims(self.mesh)?.roles;
        let wanted = theirs.wants(self.mesh, self.credential.chain() + 1)?;
        let endorsement = (wanted && (roles.node || roles.admin)).then(|| {
            // What was endorsed before is endorsed for the same time, not for now.
            let at = match &theirs.endorsed {
                Some(endorsed) => endorsed.endorsement.value().at,
                None => now,
            };
            self.key.sign(Endorsement { mesh: self.mesh, peer, token: theirs.token.hash(), at })
        });
        Ok(self.encode(endorsement))
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
        Ok((member, Some(better)))
    }

    fn judge(&self, peer: NodeId, hello: &Hello, now: WallTime) -> Result<Member, AuthError> {
        if hello.mesh != self.mesh {
            return Err(AuthError::OtherMesh { theirs: hello.mesh, ours: self.mesh });
        }
        verify(&hello.credential, self.mesh, peer, now)
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

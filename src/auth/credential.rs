//! What a member presents, and how it is judged.

use serde::{Deserialize, Serialize};

use super::roles::Roles;
use super::tickets::TicketId;
use super::token::{Token, TokenError};
use crate::core::id::{MeshId, NodeId};
use crate::core::signed::{Signable, Signed};
use crate::core::time::WallTime;

/// Endorsers behind one another, down to one whose token does not expire.
pub(super) const CHAIN_MAX: usize = 8;

/// "I saw this bound token when it was valid."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endorsement {
    /// The mesh.
    pub mesh: MeshId,
    /// Whose token it is.
    pub peer: NodeId,
    /// SHA-256 of the bound token.
    #[serde(with = "serde_bytes")]
    pub token: [u8; 32],
    /// When, by the endorser's clock.
    pub at: WallTime,
}

impl Signable for Endorsement {
    const CONTEXT: &'static [u8] = b"gpuvine/endorsement/1\0";
}

/// What a member presents on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Its bound token.
    pub token: Token,
    /// Who admitted it, and that member's own credential; none if the token does not expire, or
    /// nobody has admitted it yet.
    pub endorsed: Option<Endorsed>,
}

/// An endorsement with the proof of who gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endorsed {
    /// What the endorser saw.
    pub endorsement: Signed<Endorsement>,
    /// Who the endorser is.
    pub by: Box<Credential>,
}

/// Who has been recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// What it may do.
    pub roles: Roles,
    /// The user whose jobs are its, if its token names one.
    pub user: Option<String>,
    /// The ticket that it has come with; none for the founder.
    pub shown: Option<Shown>,
}

/// A ticket as its bearer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Which.
    pub ticket: TicketId,
    /// How many machines it is for.
    pub limit: u32,
    /// When it expires.
    pub expires: WallTime,
    /// When a member that may admit saw it, if one has signed that.
    pub endorsed: Option<WallTime>,
}

/// Why a peer is not recognized. Each is one sentence that both sides log.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The token is bound to another node: a copy.
    #[error(
        "its ticket is bound to node {bound_to}, not to {peer}: each node needs a ticket of its own"
    )]
    BoundToOther {
        /// To whom it belongs.
        bound_to: NodeId,
        /// Who presented it.
        peer: NodeId,
    },
    /// More endorsers behind one another than allowed.
    #[error("its chain of endorsements is longer than {CHAIN_MAX}: join again with a new ticket")]
    ChainTooLong,
    /// The endorser is not a member that may admit others.
    #[error("the member that admitted it is not recognized")]
    Endorser(#[source] Box<Self>),
    /// The endorser may not admit others.
    #[error("the member that admitted it may not admit others")]
    EndorserRole,
    /// The endorsement is for another token, node or mesh.
    #[error("its endorsement is for another ticket")]
    EndorsementOfOther,
    /// The ticket was not used in time.
    #[error(
        "its ticket expired at {expired}; the clock here says {now}: ask for a new one, or set the clock that is wrong"
    )]
    Expired {
        /// When it expired, UTC.
        expired: String,
        /// This machine's clock, UTC.
        now: String,
    },
    /// The message is not one of ours.
    #[error("what it presented cannot be read")]
    Malformed(#[from] ciborium::de::Error<std::io::Error>),
    /// The token was never bound.
    #[error("its ticket is not bound to a node")]
    NotBound,
    /// It belongs to another mesh.
    #[error("it belongs to mesh {theirs}, this is mesh {ours}")]
    OtherMesh {
        /// The mesh that it named.
        theirs: MeshId,
        /// This one.
        ours: MeshId,
    },
    /// A restriction of the token does not hold.
    #[error("its ticket does not admit it")]
    Restricted,
    /// Another machine has come with the same ticket before.
    #[error("its ticket was used by node {by} before: each machine needs a ticket of its own")]
    TicketUsed {
        /// That machine.
        by: NodeId,
    },
    /// As many machines as the ticket is for have come with it before.
    #[error("its ticket was used by the {limit} machines that it is for: ask for a new one")]
    TicketUsedUp {
        /// How many.
        limit: u32,
    },
    /// The token is not one of this mesh.
    #[error("its ticket is refused")]
    Token(#[from] TokenError),
}

/// Judges what a peer presents.
///
/// # Errors
/// If the peer is not a member of the mesh; the error is the sentence to tell it.
pub fn verify(
    credential: &Credential,
    mesh: MeshId,
    peer: NodeId,
    now: WallTime,
) -> Result<Member, AuthError> {
    judge(credential, mesh, peer, now, CHAIN_MAX)
}

fn judge(
    credential: &Credential,
    mesh: MeshId,
    peer: NodeId,
    now: WallTime,
    chain_left: usize,
) -> Result<Member, AuthError> {
    let claims = credential.token.claims(mesh)?;
    match claims.bound_to {
        None => return Err(AuthError::NotBound),
        Some(bound_to) if bound_to != peer => {
            return Err(AuthError::BoundToOther { bound_to, peer });
        }
        Some(_) => {}
    }
    // The time at which the token is judged: when it was first seen valid, or now.
    let endorsed = match (&credential.endorsed, claims.expires) {
        (Some(endorsed), Some(_)) => {
            Some(endorsement(endorsed, credential, mesh, peer, now, chain_left)?)
        }
        _ => None,
    };
    let at = endorsed.unwrap_or(now);
    if let Some(expired) = claims.expires.filter(|expires| *expires <= at) {
        return Err(AuthError::Expired { expired: utc(expired), now: utc(now) });
    }
    if !credential.token.permits(mesh, peer, at)? {
        return Err(AuthError::Restricted);
    }
    let (ticket, limit) = (claims.ticket, claims.limit);
    let shown = claims.expires.map(|expires| Shown { ticket, limit, expires, endorsed });
    Ok(Member { node: peer, roles: claims.roles, user: claims.user, shown })
}

/// When a token was seen valid, according to a member that may admit others.
fn endorsement(
    endorsed: &Endorsed,
    credential: &Credential,
    mesh: MeshId,
    peer: NodeId,
    now: WallTime,
    chain_left: usize,
) -> Result<WallTime, AuthError> {
    let said = endorsed.endorsement.value();
    if said.mesh != mesh || said.peer != peer || said.token != credential.token.hash() {
        return Err(AuthError::EndorsementOfOther);
    }
    let left = chain_left.checked_sub(1).ok_or(AuthError::ChainTooLong)?;
    let by = endorsed.endorsement.signer();
    let endorser = match judge(&endorsed.by, mesh, by, now, left) {
        Err(AuthError::ChainTooLong) => return Err(AuthError::ChainTooLong),
        other => other.map_err(|why| AuthError::Endorser(Box::new(why)))?,
    };
    if !endorser.roles.node && !endorser.roles.admin {
        return Err(AuthError::EndorserRole);
    }
    Ok(said.at)
}

impl Credential {
    /// How many endorsers stand behind one another.
    pub fn chain(&self) -> usize {
        self.endorsed.as_ref().map_or(0, |endorsed| 1 + endorsed.by.chain())
    }

    /// Whether it must be endorsed to outlive its ticket, or could be by a shorter chain.
    pub(super) fn wants(&self, mesh: MeshId, chain: usize) -> Result<bool, TokenError> {
        let expires = self.token.claims(mesh)?.expires.is_some();
        let improves = self.endorsed.is_none() || chain < self.chain();
        Ok(expires && improves && chain <= CHAIN_MAX)
    }
}

/// A time as people and programs read it: UTC, ISO 8601.
fn utc(time: WallTime) -> String {
    let at =
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(time.secs().min(253_402_300_799));
    humantime::format_rfc3339_seconds(at).to_string()
}

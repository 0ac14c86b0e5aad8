//! A capability token: what its bearer may do, and once bound, who its bearer is.

use std::fmt;

use biscuit_auth::builder::AuthorizerBuilder;
use biscuit_auth::macros::{authorizer, block};
use biscuit_auth::{Algorithm, AuthorizerLimits, Biscuit, PublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::roles::Roles;
use super::tickets::{TICKET_USES_MAX, TicketId};
use crate::core::id::{MeshId, NodeId};
use crate::core::time::{Duration, WallTime};

/// Bytes of one token.
const TOKEN_BYTES_MAX: usize = 4 * 1024;

/// A token: the bytes of a Biscuit.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(#[serde(with = "serde_bytes")] Vec<u8>);

/// What is wrong with a token, whoever presents it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is no Biscuit of this mesh, or was changed.
    #[error("the token is not one of this mesh, or was changed")]
    Biscuit(#[from] biscuit_auth::error::Token),
    /// It carries blocks that this program never writes.
    #[error("the token carries restrictions that are not known here")]
    Foreign,
    /// Its key or text has a wrong form.
    #[error("the token has a wrong form")]
    Format(#[from] biscuit_auth::error::Format),
    /// It is larger than any of ours.
    #[error("the token has {0} bytes, more than the {TOKEN_BYTES_MAX} allowed")]
    TooLarge(usize),
}

/// What a valid token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) roles: Roles,
    pub(super) user: Option<String>,
    pub(super) expires: Option<WallTime>,
    /// The node that it is bound to.
    pub(super) bound_to: Option<NodeId>,
    /// The ticket that it was bound from.
    pub(super) ticket: TicketId,
    /// How many machines that ticket is for.
    pub(super) limit: u32,
}

impl Token {
    pub(super) fn new(biscuit: &Biscuit) -> Result<Self, TokenError> {
        Ok(Self(biscuit.to_vec()?))
    }

    /// Binds the token to a node, offline. Nobody can take that back.
    ///
    /// # Errors
    /// If this is not a token of the mesh.
    pub fn bind(&self, mesh: MeshId, node: NodeId) -> Result<Self, TokenError> {
        let node = node.to_string();
        let bound = self.biscuit(mesh)?.append(block!("check if peer({node});"))?;
        Self::new(&bound)
    }

    /// What names the token: an endorsement is for exactly these bytes.
    pub(crate) fn hash(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }

    /// Reads what the token says; its signatures are checked, its restrictions are not.
    pub(super) fn claims(&self, mesh: MeshId) -> Result<Claims, TokenError> {
        let biscuit = self.biscuit(mesh)?;
        let bound_to = match biscuit.block_count() {
            1 => None,
            2 => Some(binding(&biscuit)?),
            _ => return Err(TokenError::Foreign),
        };
        let mut world = limited(authorizer!("allow if true;")).build(&biscuit)?;
        let mut roles = Roles::default();
        let names: Vec<(String,)> = world.query("data($role) <- role($role)")?;
        for (name,) in names {
            // A role of a later version gives nothing here.
            let _ = roles.give(&name);
        }
        let users: Vec<(String,)> = world.query("data($user) <- user($user)")?;
        let expiries: Vec<(i64,)> = world.query("data($at) <- expires($at)")?;
        let earliest = expiries.into_iter().map(|(at,)| at).min();
        let expires = earliest.map(|at| WallTime(u64::try_from(at).unwrap_or(0) * 1_000));
        let limits: Vec<(i64,)> = world.query("data($uses) <- uses($uses)")?;
        let least = limits.into_iter().map(|(uses,)| uses).min().unwrap_or(1);
        Ok(Claims {
            roles,
            user: users.into_iter().next().map(|(user,)| user),
            expires,
            bound_to,
            ticket: ticket(&biscuit),
            limit: u32::try_from(least).unwrap_or(0).clamp(1, TICKET_USES_MAX),
        })
    }

    /// Whether all restrictions of the token hold for this peer at this time.
    pub(super) fn permits(
        &self,
        mesh: MeshId,
        peer: NodeId,
        at: WallTime,
    ) -> Result<bool, TokenError> {
        let biscuit = self.biscuit(mesh)?;
        let (mesh, peer) = (mesh.to_string(), peer.to_string());
        let now = i64::try_from(at.secs()).unwrap_or(i64::MAX);
        let rules = authorizer!("now({now}); peer({peer}); allow if mesh({mesh});");
        Ok(limited(rules).build(&biscuit)?.authorize().is_ok())
    }

    fn biscuit(&self, mesh: MeshId) -> Result<Biscuit, TokenError> {
        if self.0.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLarge(self.0.len()));
        }
        let root = PublicKey::from_bytes(&mesh.0, Algorithm::Ed25519)?;
        Ok(Biscuit::from(&self.0, root)?)
    }
}

/// The ticket that a token was bound from: the signature of its first block names it, for the key
/// of the next block, drawn for each ticket, is under that signature too.
fn ticket(biscuit: &Biscuit) -> TicketId {
    let ids = biscuit.revocation_identifiers();
    TicketId(Sha256::digest(ids.first().map_or(&[][..], Vec::as_slice)).into())
}

/// Whom the second block binds the token to. Any other block than ours is refused: an unknown one
/// could hide a restriction that does not restrict.
fn binding(biscuit: &Biscuit) -> Result<NodeId, TokenError> {
    if biscuit.block_external_key(1)?.is_some() {
        return Err(TokenError::Foreign);
    }
    let source = biscuit.print_block_source(1)?;
    source
        .trim()
        .strip_prefix("check if peer(\"")
        .and_then(|rest| rest.strip_suffix("\");"))
        .and_then(|node| node.parse().ok())
        .ok_or(TokenError::Foreign)
}

/// A token comes from a stranger: evaluating it may not cost much.
fn limited(builder: AuthorizerBuilder) -> AuthorizerBuilder {
    builder.set_limits(AuthorizerLimits {
        max_facts: 64,
        max_iterations: 16,
        max_time: Duration::from_millis(200),
    })
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.0.len())
    }
}

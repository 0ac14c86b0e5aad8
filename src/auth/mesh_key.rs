//! The founder's key: whoever holds it can invite.

use std::fmt;

use biscuit_auth::macros::biscuit;
use biscuit_auth::{Algorithm, KeyPair, PrivateKey};
use zeroize::Zeroizing;

use super::roles::Roles;
use super::token::{Token, TokenError};
use crate::core::id::MeshId;
use crate::core::signed::Key;
use crate::core::time::WallTime;

/// The secret key of a mesh.
#[derive(Clone)]
pub struct MeshKey(Zeroizing<[u8; 32]>);

/// To whom a token is given, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grantee {
    /// What its bearer may do.
    pub roles: Roles,
    /// The user whose jobs these are, if the token is for one.
    pub user: Option<String>,
    /// Until when the token admits a newcomer; `None`: for ever.
    pub expires: Option<WallTime>,
    /// How many machines may join with it.
    pub uses: u32,
}

impl MeshKey {
    /// The key with these secret bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(Zeroizing::new(seed))
    }

    /// The mesh that it founds.
    pub fn mesh(&self) -> MeshId {
        MeshId(Key::from_seed(&self.0).id().0)
    }

    /// Makes a token that is not bound to a node yet.
    ///
    /// # Errors
    /// If the Biscuit cannot be built; nothing that a user can cause.
    pub fn mint(&self, grantee: &Grantee) -> Result<Token, TokenError> {
        let private = PrivateKey::from_bytes(&self.0[..], Algorithm::Ed25519)?;
        let mesh = self.mesh().to_string();
        let mut builder = biscuit!("mesh({mesh});");
        for role in grantee.roles.names() {
            builder = builder.fact(biscuit_auth::macros::fact!("role({role})"))?;
        }
        if let Some(user) = grantee.user.clone() {
            builder = builder.fact(biscuit_auth::macros::fact!("user({user})"))?;
        }
        // One is what a token without a word about it is for.
        if grantee.uses != 1 {
            let uses = i64::from(grantee.uses);
            builder = builder.fact(biscuit_auth::macros::fact!("uses({uses})"))?;
        }
        if let Some(expires) = grantee.expires {
            let seconds = i64::try_from(expires.secs()).unwrap_or(i64::MAX);
            builder = builder
                .fact(biscuit_auth::macros::fact!("expires({seconds})"))?
                .check(biscuit_auth::macros::check!("check if now($now), $now < {seconds}"))?;
        }
        Token::new(&builder.build(&KeyPair::from(&private))?)
    }
}

impl fmt::Debug for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshKey({})", self.mesh())
    }
}

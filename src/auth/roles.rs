//! What a member may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a member may do. Every member takes part in gossip and elections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Offer GPUs, and admit others.
    pub node: bool,
    /// Submit jobs.
    pub submit: bool,
    /// See and end the jobs of others.
    pub admin: bool,
}

/// A word that is not a role.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a role: use node, submit or admin, with commas between them")]
pub struct ParseRoleError(String);

impl Roles {
    /// All of them.
    pub const ALL: Self = Self { node: true, submit: true, admin: true };

    /// The names of those that are given.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.node, "node"), (self.submit, "submit"), (self.admin, "admin")]
            .into_iter()
            .filter_map(|(given, name)| given.then_some(name))
    }

    /// Gives one more, by name; unknown names of later versions are not roles here.
    ///
    /// # Errors
    /// If the name is not a role.
    pub fn give(&mut self, name: &str) -> Result<(), ParseRoleError> {
        match name {
            "node" => self.node = true,
            "submit" => self.submit = true,
            "admin" => self.admin = true,
            other => return Err(ParseRoleError(other.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for Roles {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let mut roles = Self::default();
        for name in text.split(',') {
            roles.give(name.trim())?;
        }
        Ok(roles)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

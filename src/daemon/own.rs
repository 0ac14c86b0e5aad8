//! What this node's own membership allows, so that users are told at once and not by others.

use super::admission::{rights, sentence};
use crate::auth::{AuthError, Member};
use crate::core::rights::Rights;

/// This node's own membership, as it was when the daemon started.
#[derive(Clone, Debug)]
pub(crate) struct Own(Result<Member, String>);

impl Own {
    pub(super) fn new(member: Result<Member, AuthError>) -> Self {
        Self(member.map_err(|error| sentence(&error)))
    }

    /// What it may do. One that is not recognized here may offer: should the others recognize it,
    /// the clock that is wrong is this one, and else nobody sees it.
    pub(super) fn rights(&self) -> Rights {
        let unknown = Rights { node: true, submit: false };
        self.0.as_ref().map_or(unknown, |member| rights(member.roles))
    }

    /// The user whose jobs are all that are submitted here, if the membership names one.
    pub(super) fn user(&self) -> Option<String> {
        self.0.as_ref().ok()?.user.clone()
    }

    /// Whether users may submit here.
    ///
    /// # Errors
    /// If they may not: the sentence to tell them.
    pub(super) fn may_submit(&self) -> Result<(), String> {
        match &self.0 {
            Ok(member) if member.roles.submit => Ok(()),
            Ok(member) => Err(format!(
                "this node may not submit jobs: its membership has the roles `{}`, not `submit`",
                member.roles
            )),
            Err(why) => Err(format!("this node is not a member of its mesh: {why}")),
        }
    }

    /// Why no GPUs may be offered here, if they may not.
    pub(super) fn no_gpus(&self) -> Option<String> {
        let member = self.0.as_ref().ok().filter(|member| !member.roles.node)?;
        Some(format!(
            "its membership has the roles `{}`, not `node`: its GPUs are not offered",
            member.roles
        ))
    }
}

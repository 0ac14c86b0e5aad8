//! Founding a mesh, inviting into it, and joining one: what happens to the files of a node.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rand::TryRng as _;
use rand::rngs::SysRng;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::auth::{Credential, Grantee, MeshKey, Roles, Ticket, verify};
use crate::clock;
use crate::config::Paths;
use crate::core::id::{MeshId, NodeId};
use crate::core::signed::Key;
use crate::core::time::WallTime;
use crate::store::secret::{self, Secret};
use crate::store::{Keep, keep_once, whole};

/// A mesh that was founded.
#[derive(Debug, Serialize)]
pub struct Founded {
    /// The mesh's id.
    pub mesh: String,
    /// This node's id.
    pub node: String,
    /// Where the mesh's key is.
    pub mesh_key: String,
}

/// A ticket for one machine, or several.
#[derive(Debug, Serialize)]
pub struct Invitation {
    /// The word to paste.
    pub ticket: String,
    /// Until when it may be used.
    pub expires: String,
    /// What its bearer may do.
    pub roles: String,
    /// How many machines may join with it.
    pub uses: u32,
}

/// The file that names the mesh a node belongs to.
const MESH: &str = "mesh";

/// Founds a mesh; this node is its first member, with all roles and for ever.
///
/// # Errors
/// If the node belongs to a mesh already, or its files cannot be written.
pub fn init(paths: &Paths) -> Result<Founded> {
    secret::make_folder(&paths.dir)?;
    if let Some(mesh) = mesh(paths)? {
        bail!(
            "{} belongs to mesh {mesh} already: `gpuvine up` starts its daemon; --dir names another \
             folder",
            paths.dir.display()
        );
    }
    // One that was killed half way has left its key; nobody can be a member of that mesh yet.
    let mesh_key = MeshKey::from_seed(*secret_at(&paths.mesh_key())?);
    let node = identity(paths)?.id();
    let grantee = Grantee { roles: Roles::ALL, user: None, expires: None, uses: 1 };
    let token = mesh_key.mint(&grantee)?.bind(mesh_key.mesh(), node)?;
    let credential = Keep::Credential(Box::new(Credential { token, endorsed: None }));
    keep_once(&paths.dir, |_| vec![credential, Keep::Seniority(0)])?;
    write_mesh(paths, &mesh_key.mesh().to_string())?;
    Ok(Founded {
        mesh: mesh_key.mesh().to_string(),
        node: node.to_string(),
        mesh_key: paths.mesh_key().display().to_string(),
    })
}

/// Makes a ticket. Works where the mesh's key is.
///
/// # Errors
/// If the key is not here or cannot be read.
pub fn invite(
    paths: &Paths,
    roles: Roles,
    user: Option<String>,
    uses: u32,
    expires: WallTime,
    addresses: Vec<String>,
) -> Result<Invitation> {
    let path = paths.mesh_key();
    let Some(seed) = secret::read(&path)? else {
        bail!(
            "the mesh's key is not here ({}): invite on the machine where `gpuvine init` was run",
            path.display()
        );
    };
    let key = MeshKey::from_seed(*seed);
    let token = key.mint(&Grantee { roles, user, expires: Some(expires), uses })?;
    let ticket = Ticket { mesh: key.mesh(), token, addresses };
    Ok(Invitation {
        ticket: ticket.to_string(),
        expires: super::views::utc(expires),
        roles: roles.to_string(),
        uses,
    })
}

/// Binds a ticket to this node, offline, and keeps it.
///
/// # Errors
/// If the node belongs to another mesh, or the ticket is not one.
pub fn join(paths: &Paths, ticket: &Ticket) -> Result<()> {
    secret::make_folder(&paths.dir)?;
    if let Some(mesh) = mesh(paths)? {
        if mesh == ticket.mesh.to_string() {
            // A new ticket for a member: for one whose membership was not endorsed in time.
            tracing::debug!("this node is a member already; its new ticket is kept");
        } else {
            bail!(
                "{} belongs to mesh {mesh}, the ticket is for mesh {}: use another folder (--dir)",
                paths.dir.display(),
                ticket.mesh
            );
        }
    }
    let node: NodeId = identity(paths)?.id();
    let token = ticket.token.bind(ticket.mesh, node).context("the ticket cannot be used")?;
    let new = Credential { token, endorsed: None };
    let (mut keep, mut refused) = (Vec::new(), None);
    // The members that the ticket names are remembered: a restart needs no ticket.
    for address in &ticket.addresses {
        let member = address.rsplit_once("/p2p/").map(|(_, id)| id.parse::<NodeId>());
        if let Some(Ok(member)) = member {
            let all = ticket.addresses.iter().filter(|other| other.ends_with(&member.to_string()));
            keep.push(Keep::Peer(member, all.cloned().collect()));
        }
    }
    keep_once(&paths.dir, |loaded| {
        let kept = loaded.credential.as_ref();
        if kept.is_none_or(|kept| is_better(&new, kept, ticket.mesh, node)) {
            // Nobody would admit it; better said now, and before anything is kept of it.
            refused = verify(&new, ticket.mesh, node, clock::wall()).err();
            keep.push(Keep::Credential(Box::new(new)));
        }
        if refused.is_some() { Vec::new() } else { keep }
    })?;
    if let Some(refused) = refused {
        return Err(refused).context("the ticket cannot be used");
    }
    write_mesh(paths, &ticket.mesh.to_string())
}

/// Whether a new ticket is worth more than the membership that is kept. A member that was started
/// with its old ticket again, as a service is at each boot, stays what it is, and so does the
/// founder. Another ticket is a wish for other roles, or comes after a refusal of the old one.
fn is_better(new: &Credential, kept: &Credential, mesh: MeshId, node: NodeId) -> bool {
    let now = clock::wall();
    let Ok(kept) = verify(kept, mesh, node, now) else { return true };
    let Some(kept) = kept.shown else { return false };
    let new = verify(new, mesh, node, now).ok().and_then(|member| member.shown);
    new.is_some_and(|new| new.ticket != kept.ticket)
}

/// The mesh that a node belongs to.
pub(super) fn mesh(paths: &Paths) -> Result<Option<String>> {
    let path = paths.dir.join(MESH);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write_mesh(paths: &Paths, mesh: &str) -> Result<()> {
    let path = paths.dir.join(MESH);
    // Without it the node belongs nowhere.
    whole::replace(&path, format!("{mesh}\n").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The node's identity; made at the first need.
pub(super) fn identity(paths: &Paths) -> Result<Key> {
    Ok(Key::from_seed(&*seed(paths)?))
}

/// The secret of the node's identity.
pub(super) fn seed(paths: &Paths) -> Result<Secret> {
    secret_at(&paths.identity())
}

/// A secret that is kept there; made at the first need.
fn secret_at(path: &Path) -> Result<Secret> {
    if let Some(seed) = secret::read(path)? {
        return Ok(seed);
    }
    let seed = random()?;
    secret::create(path, &seed)?;
    Ok(seed)
}

/// Thirty-two bytes that nobody can guess.
pub(super) fn random() -> Result<Secret> {
    let mut bytes = Zeroizing::new([0; 32]);
    SysRng.try_fill_bytes(&mut bytes[..]).context("the system gives no random bytes")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Endorsed, Endorsement};
    use crate::store::Loaded;

    fn paths(root: &Path) -> Paths {
        Paths { dir: root.join("state"), socket: root.join("sock") }
    }

    fn credential(node: &Paths) -> Credential {
        let mut found = None;
        let look = |loaded: &Loaded| {
            found = loaded.credential.clone();
            Vec::new()
        };
        keep_once(&node.dir, look).unwrap();
        found.unwrap()
    }

    fn invited(mesh: &Paths, lasts_ms: u64) -> Ticket {
        let expires = WallTime(clock::wall().0 + lasts_ms);
        let invitation = invite(mesh, Roles::ALL, None, 1, expires, Vec::new()).unwrap();
        invitation.ticket.parse().unwrap()
    }

    /// A service is started with its ticket at every boot. The membership that it had got by then
    /// was lost, and it was a stranger as soon as the ticket had expired.
    #[test]
    fn a_member_that_is_started_with_its_ticket_again_stays_a_member() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let founder = paths(one.path());
        let member = paths(two.path());
        init(&founder).unwrap();
        let ticket = invited(&founder, 60_000);
        join(&member, &ticket).unwrap();
        let kept = credential(&member);
        let node = identity(&member).unwrap().id();
        let by = credential(&founder);
        let endorsement = Endorsement {
            mesh: ticket.mesh,
            peer: node,
            token: kept.token.hash(),
            at: clock::wall(),
        };
        let endorsement = identity(&founder).unwrap().sign(endorsement);
        let endorsed =
            Credential { endorsed: Some(Endorsed { endorsement, by: Box::new(by) }), ..kept };
        let keep = vec![Keep::Credential(Box::new(endorsed.clone()))];
        keep_once(&member.dir, |_| keep).unwrap();
        join(&member, &ticket).unwrap();
        assert_eq!(credential(&member), endorsed);
    }

    #[test]
    fn a_ticket_that_has_expired_is_refused_before_anything_is_kept() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (founder, member) = (paths(one.path()), paths(two.path()));
        init(&founder).unwrap();
        let told = format!("{:#}", join(&member, &invited(&founder, 0)).unwrap_err());
        assert!(told.contains("its ticket expired at"), "{told}");
        assert_eq!(mesh(&member).unwrap(), None);
    }

    /// Its ticket was used by another machine before, as it was told, and it got a new one with the
    /// same roles: that one was not taken.
    #[test]
    fn another_ticket_takes_the_place_of_the_old_one_but_never_of_the_founders() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (founder, member) = (paths(one.path()), paths(two.path()));
        init(&founder).unwrap();
        join(&member, &invited(&founder, 60_000)).unwrap();
        let before = credential(&member);
        join(&member, &invited(&founder, 60_000)).unwrap();
        assert_ne!(credential(&member), before);
        let late = credential(&member);
        join(&member, &invited(&founder, 0)).unwrap();
        assert_eq!(credential(&member), late);
        let founders = credential(&founder);
        join(&founder, &invited(&founder, 60_000)).unwrap();
        assert_eq!(credential(&founder), founders);
    }

    /// Killed between its two files.
    #[test]
    fn a_founding_that_broke_off_can_be_done_again() {
        let root = tempfile::tempdir().unwrap();
        let node = paths(root.path());
        let first = init(&node).unwrap();
        std::fs::remove_file(node.dir.join(MESH)).unwrap();
        assert_eq!(init(&node).unwrap().mesh, first.mesh);
        assert!(init(&node).unwrap_err().to_string().contains("belongs to mesh"));
    }
}

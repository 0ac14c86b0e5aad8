//! The database: jobs, peers, and a few facts, in one redb file.

use std::fs;
use std::path::{Path, PathBuf};

use redb::{DatabaseError, ReadableTable as _, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

use super::{Keep, Loaded, PEERS_MAX, StoreError};
use crate::auth::TicketId;
use crate::core::id::{Incarnation, NodeId, Term};

/// The format that this program writes. Older ones are read, later ones are refused.
const FORMAT: u64 = 1;

const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");
const JOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("jobs");
const PEERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("peers");
const TICKETS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("tickets");
/// Records that could not be read, kept for whoever wants to know.
const BROKEN: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("broken");

/// An open database.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// `None` after a failure: redb writes no more to what failed once, and has to open it anew.
    database: Option<redb::Database>,
}

impl Database {
    /// Opens the database of a folder, or makes one. A damaged one is set aside.
    pub(super) fn open(folder: &Path) -> Result<(Self, Loaded), StoreError> {
        let path = folder.join("gpuvine.redb");
        match Self::try_open(&path) {
            Ok(opened) => Ok(opened),
            Err(error @ (StoreError::Busy(_) | StoreError::Later { .. })) => Err(error),
            Err(StoreError::Database { source, .. }) if path.exists() && is_damage(&source) => {
                let aside = set_aside(&path)?;
                let (database, mut loaded) = Self::try_open(&path)?;
                loaded.notes.push(format!(
                    "the database was damaged ({source}); it is kept as {}, and jobs in it are \
                     not known any more",
                    aside.display()
                ));
                Ok((database, loaded))
            }
            Err(error) => Err(error),
        }
    }

    fn try_open(path: &Path) -> Result<(Self, Loaded), StoreError> {
        let database = match redb::Database::create(path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                let folder = path.parent().unwrap_or(path);
                return Err(StoreError::Busy(folder.to_owned()));
            }
            Err(source) => {
                return Err(StoreError::Database { path: path.to_owned(), source: source.into() });
            }
        };
        private(path)?;
        let loaded = load(&database);
        let opened = Self { path: path.to_owned(), database: Some(database) };
        let loaded = loaded.map_err(|source| opened.error(source))?;
        match loaded {
            Ok(loaded) => Ok((opened, loaded)),
            Err(found) => Err(StoreError::Later { path: path.to_owned(), found, known: FORMAT }),
        }
    }

    /// Writes a group in one commit, flushed when it returns. After a failure, such as a full disk,
    /// it may be tried again.
    pub(super) fn write(
        &mut self,
        keep: &[Keep],
        incarnation: Incarnation,
        term: Term,
    ) -> Result<(), StoreError> {
        let database = match self.database.take() {
            Some(database) => Ok(database),
            None => redb::Database::open(&self.path).map_err(redb::Error::from),
        };
        let written = database.and_then(|database| {
            try_write(&database, keep, incarnation, term)?;
            Ok(database)
        });
        self.database = Some(written.map_err(|source| self.error(source))?);
        Ok(())
    }

    fn error(&self, source: redb::Error) -> StoreError {
        StoreError::Database { path: self.path.clone(), source }
    }
}

/// Reads everything; `Err` within is a later format.
fn load(database: &redb::Database) -> Result<Result<Loaded, u64>, redb::Error> {
    let write = database.begin_write()?;
    let mut loaded = Loaded::default();
    {
        let mut facts = write.open_table(FACTS)?;
        let format = fact::<u64>(&facts, "format")?.unwrap_or(FORMAT);
        if format > FORMAT {
            return Ok(Err(format));
        }
        facts.insert("format", bytes(&FORMAT).as_slice())?;
        loaded.incarnation = fact(&facts, "incarnation")?.unwrap_or_default();
        loaded.term = fact(&facts, "term")?.unwrap_or_default();
        loaded.seniority = fact(&facts, "seniority")?;
        loaded.credential = fact(&facts, "credential")?;
        let mut jobs = write.open_table(JOBS)?;
        let mut broken = write.open_table(BROKEN)?;
        let mut bad = Vec::new();
        for entry in jobs.iter()? {
            let (id, record) = entry?;
            match ciborium::from_reader(record.value()) {
                Ok(record) => loaded.jobs.push(record),
                Err(_) => bad.push((id.value(), record.value().to_vec())),
            }
        }
        for (id, record) in bad {
            loaded.notes.push(format!("the record of job {id:#x} is damaged and set aside"));
            broken.insert(id, record.as_slice())?;
            jobs.remove(id)?;
        }
        let peers = write.open_table(PEERS)?;
        for entry in peers.iter()? {
            let (node, addresses) = entry?;
            let node = node.value().try_into().ok().map(NodeId);
            let addresses = ciborium::from_reader(addresses.value());
            if let (Some(node), Ok(addresses)) = (node, addresses) {
                loaded.peers.push((node, addresses));
            }
        }
        let tickets = write.open_table(TICKETS)?;
        for entry in tickets.iter()? {
            let (ticket, used) = entry?;
            let ticket = ticket.value().try_into().ok().map(TicketId);
            let used = ciborium::from_reader(used.value());
            if let (Some(ticket), Ok(used)) = (ticket, used) {
                loaded.tickets.push((ticket, used));
            }
        }
    }
    write.commit()?;
    Ok(Ok(loaded))
}

fn try_write(
    database: &redb::Database,
    keep: &[Keep],
    incarnation: Incarnation,
    term: Term,
) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut facts = write.open_table(FACTS)?;
        let mut jobs = write.open_table(JOBS)?;
        let mut peers = write.open_table(PEERS)?;
        let mut tickets = write.open_table(TICKETS)?;
        facts.insert("incarnation", bytes(&incarnation).as_slice())?;
        facts.insert("term", bytes(&term).as_slice())?;
        for keep in keep {
            match keep {
                Keep::Credential(credential) => {
                    facts.insert("credential", bytes(credential).as_slice())?;
                }
                Keep::ForgetJob(job) => drop(jobs.remove(job.bits())?),
                Keep::Job(record) => {
                    jobs.insert(record.spec.id.bits(), bytes(record).as_slice())?;
                }
                Keep::Peer(node, addresses) => {
                    let known = peers.get(node.0.as_slice())?.is_some();
                    if known || redb::ReadableTableMetadata::len(&peers)? < PEERS_MAX as u64 {
                        peers.insert(node.0.as_slice(), bytes(addresses).as_slice())?;
                    }
                }
                Keep::Seniority(seniority) => {
                    facts.insert("seniority", bytes(seniority).as_slice())?;
                }
                Keep::Ticket(ticket, Some(used)) => {
                    tickets.insert(ticket.0.as_slice(), bytes(used).as_slice())?;
                }
                Keep::Ticket(ticket, None) => drop(tickets.remove(ticket.0.as_slice())?),
                // In the fence, and above.
                Keep::Incarnation(_) | Keep::Term(_) => {}
            }
        }
    }
    write.commit()?;
    Ok(())
}

/// Whether the file's content is at fault, and not the disk or its rights.
fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Io(error) => matches!(
            error.kind(),
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
        ),
        _ => true,
    }
}

/// Renames a damaged database to the first free name.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let fail = |source| StoreError::File { path: path.to_owned(), source };
    let aside = (1..1_000)
        .map(|number| path.with_extension(format!("redb.damaged-{number}")))
        .find(|aside| !aside.exists())
        .ok_or_else(|| fail(std::io::ErrorKind::AlreadyExists.into()))?;
    fs::rename(path, &aside).map_err(fail)?;
    Ok(aside)
}

/// For its owner alone: what users submit is in it.
fn private(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|source| StoreError::File { path: path.to_owned(), source })
}

/// A fact; one that cannot be read is as good as absent.
fn fact<V: DeserializeOwned>(
    facts: &redb::Table<'_, &'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<V>, redb::Error> {
    let value = facts.get(name)?;
    Ok(value.and_then(|value| ciborium::from_reader(value.value()).ok()))
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a vector cannot fail, and nothing kept has a `Serialize` that refuses.
    #[expect(clippy::expect_used, reason = "see above")]
    ciborium::into_writer(value, &mut bytes).expect("what is kept can be encoded");
    bytes
}

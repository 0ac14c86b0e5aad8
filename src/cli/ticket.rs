//! Where a ticket comes from: the command line, a file, or standard input.
//!
//! A command line is seen by every user of the machine, and kept in the shell's history.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::exit::Failure;
use crate::auth::{TICKET_TEXT_MAX, Ticket, TicketError};

/// Blanks that may be around a ticket.
const BLANKS_MAX: usize = 1_024;

/// What is given to `--join`.
#[derive(Clone, Debug)]
pub(crate) enum Join {
    /// The ticket is in this file.
    File(PathBuf),
    /// The ticket comes by standard input.
    Stdin,
    /// This is the ticket.
    Ticket(Box<Ticket>),
}

impl FromStr for Join {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        match text.strip_prefix('@') {
            Some(path) => Ok(Self::File(path.into())),
            None if text == "-" => Ok(Self::Stdin),
            None => Ok(Self::Ticket(Box::new(text.parse()?))),
        }
    }
}

impl Join {
    /// The ticket.
    pub(crate) fn read(self, stdin: impl Read) -> Result<Ticket, Failure> {
        match self {
            Self::File(path) => parse(&path.display().to_string(), open(&path)?),
            Self::Stdin => parse("standard input", stdin),
            Self::Ticket(ticket) => Ok(*ticket),
        }
    }
}

/// Opens a file that holds a ticket: others may not be able to read it.
fn open(path: &Path) -> Result<File, Failure> {
    let fail = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(fail)?;
    let about = file.metadata().map_err(fail)?;
    let mode = about.mode() & 0o777;
    // Pipes, as `@/dev/fd/3`, are nobody else's.
    if about.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        return Err(Failure::usage(format!("others can read {path} (mode {mode:o})")).hint(
            format!("run `chmod 600 {path}`, or pass it on: `gpuvine up --join - < {path}`"),
        ));
    }
    Ok(file)
}

fn parse(whence: &str, from: impl Read) -> Result<Ticket, Failure> {
    let fail = |why: &dyn std::fmt::Display| Failure::usage(format!("{whence}: {why}"));
    let mut text = String::new();
    // One more than fits, so that what is too long is seen to be.
    let limit = (TICKET_TEXT_MAX + BLANKS_MAX) as u64;
    from.take(limit).read_to_string(&mut text).map_err(|error| fail(&error))?;
    if text.trim().is_empty() {
        return Err(fail(&"there is no ticket in it"));
    }
    text.parse().map_err(|error: TicketError| fail(&error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::auth::{Grantee, MeshKey, Roles};

    fn ticket() -> Ticket {
        let key = MeshKey::from_seed([1; 32]);
        let grantee = Grantee { roles: Roles::ALL, user: None, expires: None, uses: 1 };
        Ticket { mesh: key.mesh(), token: key.mint(&grantee).unwrap(), addresses: Vec::new() }
    }

    fn read(join: &str, stdin: &str) -> Result<Ticket, String> {
        let join: Join = join.parse().map_err(|error: TicketError| error.to_string())?;
        join.read(stdin.as_bytes()).map_err(|failure| failure.error.message)
    }

    #[test]
    fn a_ticket_is_read_from_the_line_from_a_file_and_from_standard_input() {
        let (ticket, folder) = (ticket(), tempfile::tempdir().unwrap());
        let file = folder.path().join("ticket");
        std::fs::write(&file, format!("{ticket}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let at = format!("@{}", file.display());
        assert_eq!(read(&ticket.to_string(), "").unwrap(), ticket);
        assert_eq!(read(&at, "").unwrap(), ticket);
        assert_eq!(read("-", &format!("  {ticket}\r\n\n")).unwrap(), ticket);
    }

    #[test]
    fn what_is_no_ticket_is_told_with_where_it_came_from() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ticket");
        let at = format!("@{}", file.display());
        assert!(read(&at, "").unwrap_err().contains("cannot read"));
        std::fs::write(&file, ticket().to_string()).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&at, "").unwrap_err().contains("others can read"));
        assert_eq!(read("-", " \n").unwrap_err(), "standard input: there is no ticket in it");
        assert!(read("-", "hello").unwrap_err().contains("not a ticket"));
        assert!(read("-", &"x".repeat(1 << 20)).unwrap_err().contains("too long"));
    }
}

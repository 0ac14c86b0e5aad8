//! A ticket: a token and where to present it, as one word to paste.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::token::Token;
use crate::core::id::MeshId;

/// What every ticket begins with: the program and the version of the format.
const PREFIX: &str = "gpuvine1";

/// Characters of a ticket.
pub const TICKET_TEXT_MAX: usize = 12 * 1024;

/// Addresses in a ticket, and bytes of its checksum.
const ADDRESSES_MAX: usize = 32;
const CHECKSUM: usize = 4;

/// An invitation into a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The mesh.
    pub mesh: MeshId,
    /// The token, not bound to a node yet.
    pub token: Token,
    /// Multiaddresses of members.
    pub addresses: Vec<String>,
}

/// What is wrong with a ticket.
#[derive(Debug, thiserror::Error)]
pub enum TicketError {
    /// The text is not a ticket at all.
    #[error("this is not a ticket (a ticket begins with {PREFIX})")]
    NotATicket,
    /// Characters are missing or wrong.
    #[error("the ticket is cut off or mistyped: paste all of it, without blanks")]
    Damaged,
    /// The checksum is right, the content is not: another version wrote it.
    #[error("the ticket was made by another version of gpuvine")]
    Unknown(#[from] ciborium::de::Error<std::io::Error>),
    /// It is larger than any of ours.
    #[error("the ticket is too long")]
    TooLong,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        ciborium::into_writer(self, &mut bytes).map_err(|_| fmt::Error)?;
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum[..CHECKSUM]);
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        if text.len() > TICKET_TEXT_MAX {
            return Err(TicketError::TooLong);
        }
        let body = text.strip_prefix(PREFIX).ok_or(TicketError::NotATicket)?;
        // Where exactly the characters are wrong helps nobody.
        let bytes = BASE64URL_NOPAD.decode(body.as_bytes()).map_err(|_| TicketError::Damaged)?;
        let (bytes, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(TicketError::Damaged)?;
        if Sha256::digest(bytes)[..CHECKSUM] != checksum[..] {
            return Err(TicketError::Damaged);
        }
        let ticket: Self = ciborium::from_reader(bytes)?;
        if ticket.addresses.len() > ADDRESSES_MAX {
            return Err(TicketError::TooLong);
        }
        Ok(ticket)
    }
}

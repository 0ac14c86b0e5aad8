//! Who belongs to a mesh: tickets, tokens, endorsements.
//!
//! A mesh is founded by a key pair; its id is the public key. [`MeshKey::mint`] makes a capability
//! token (a Biscuit, <https://www.biscuitsec.org>) with roles and an expiry; [`Ticket`] is the
//! token with addresses to dial, as one word to paste. A joiner appends a block that binds the
//! token to its own node id: offline, and for ever, for nothing appended later can widen a Biscuit.
//! What it then presents on every connection is its [`Credential`].
//!
//! A ticket expires soon, a membership does not: the first member that admits a joiner signs an
//! [`Endorsement`], "I saw this bound token when it was valid", and from then on the token is
//! judged at that time. Endorsers are members themselves, proven by their own credentials.
//!
//! A ticket is for one machine, or as many as it says. Every member remembers who has come with
//! which ticket and refuses another; see [`Tickets`] for what that is worth.
//!
//! Nothing here reads a clock or a file: `now` is an argument. Only a Biscuit's own throw-away keys
//! come from the system's generator.

mod admission;
mod credential;
mod mesh_key;
mod roles;
#[cfg(test)]
mod tests;
mod ticket;
mod tickets;
mod token;

pub use self::admission::Passport;
pub use self::credential::{AuthError, Credential, Endorsed, Endorsement, Member, Shown, verify};
pub use self::mesh_key::{Grantee, MeshKey};
pub use self::roles::{ParseRoleError, Roles};
pub use self::ticket::{TICKET_TEXT_MAX, Ticket, TicketError};
pub use self::tickets::{TICKET_USES_MAX, TicketChange, TicketId, Tickets, Use, Used};
pub use self::token::{Token, TokenError};

//! `gpuvine invite`

use super::args::Globals;
use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::client::Client;
use crate::auth::Roles;
use crate::clock;
use crate::core::time::{Duration, WallTime};
use crate::daemon::found;

/// Print a ticket with which a machine joins the mesh; works where the mesh's key is
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvine invite --role node,submit --expires 2h")]
pub(crate) struct Args {
    /// What the machine may do: node (offer GPUs, admit others), submit (jobs), admin
    #[arg(long, default_value = "node,submit", value_name = "ROLES")]
    role: Roles,
    /// How long the ticket may be used; who has joined stays a member
    #[arg(long, default_value = "24h", value_parser = humantime::parse_duration, value_name = "TIME")]
    expires: Duration,
    /// The user whose jobs the machine submits
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

pub(crate) async fn run(
    args: Args,
    globals: &Globals,
    client: &Client,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let paths = globals.paths()?;
    let addresses = client.addresses().await?.addresses;
    let millis = u64::try_from(args.expires.as_millis()).unwrap_or(u64::MAX);
    let expires = WallTime(clock::wall().0.saturating_add(millis));
    let invitation = found::invite(&paths, args.role, args.user, expires, addresses)?;
    let about = format!("a ticket with the roles {}, until {}", args.role, invitation.expires);
    if printer.json() || !printer.is_terminal() {
        // For a script: the ticket, once and alone.
        if !printer.json() {
            printer.say(&format!("{about}: `gpuvine up --join TICKET` on the new machine"));
        }
        return printer.value(&invitation, |invitation| invitation.ticket.clone());
    }
    printer.say(&format!("{about}. On the new machine:"));
    printer.line(&format!("\n  gpuvine up --join {}", invitation.ticket))
}

//! `gpuvine invite`

use super::args::Globals;
use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::client::Client;
use crate::auth::{Roles, TICKET_USES_MAX};
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
    /// How many machines may join with the ticket
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(TICKET_USES_MAX)))]
    uses: u32,
    /// The user whose jobs are all that the machine submits, whoever submits them there
    #[arg(long, value_name = "NAME", value_parser = user)]
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
    let invitation = found::invite(&paths, args.role, args.user, args.uses, expires, addresses)?;
    let whom = match args.uses {
        1 => "one machine".to_owned(),
        uses => format!("{uses} machines"),
    };
    let about =
        format!("a ticket for {whom} with the roles {}, until {}", args.role, invitation.expires);
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

/// A name that fits beside every job.
fn user(text: &str) -> Result<String, String> {
    let odd = |c: char| c.is_control() || c.is_whitespace();
    match text.chars().count() {
        1..=64 if !text.contains(odd) => Ok(text.to_owned()),
        _ => Err("a user's name has 1 to 64 characters and no blanks".to_owned()),
    }
}

//! Decides what a home hears that asks and may not submit.

use super::{Controller, Fleet, Send};
use crate::core::control::{Ask, Message};
use crate::core::id::NodeId;
use crate::core::outbox::Outbox;
use crate::core::time::Instant;

impl Controller {
    /// A home that may not submit is told so for all that it asks, and nothing of it waits here.
    pub(super) fn on_barred(
        &mut self,
        from: NodeId,
        message: Message,
        fleet: &Fleet<'_>,
        now: Instant,
        out: &mut Outbox<Send>,
    ) {
        let (asks, rest) = match message {
            Message::Ask(ask) => (vec![ask], None),
            Message::Present { term, report, asks } => {
                (asks, Some(Message::Present { term, report, asks: Vec::new() }))
            }
            other => (Vec::new(), Some(other)),
        };
        for Ask { task, .. } in asks {
            // It may have asked before this was known.
            self.on_received(from, Message::Withdraw { task }, fleet, now, out);
            if self.reigns() {
                out.push(Send(from, Message::Forbidden { task }));
            }
        }
        if let Some(rest) = rest {
            self.on_received(from, rest, fleet, now, out);
        }
    }
}

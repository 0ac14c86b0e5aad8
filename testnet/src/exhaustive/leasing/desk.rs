//! What the two controllers grant: whatever the controller of the core makes of a request and of
//! any report that a node ever gave.
//!
//! Here a controller has no memory: it is as if it were started anew for each request, believed all
//! nodes but one dead, and had of that one a report as old as can be. So each of the two grants, at
//! any time and as often as it likes, every GPU that it could ever have seen free, also to both
//! jobs; a controller that remembers its queue and what it has granted does less. A grant that
//! travels for a while is the same as one that is made later from the same old report, so that it
//! need not be kept.

use gpuvine::core::control::{Ask, Message};
use gpuvine::core::controller::{Config, Controller, Fleet, Input, Send};
use gpuvine::core::outbox::Outbox;
use gpuvine::core::report::Report;
use gpuvine::core::task::TaskId;
use gpuvine::core::time::Instant;

use super::cast::Cast;
use super::note::Note;

/// What a controller that has just claimed answers to the home of a task, if it has heard of one
/// node alone.
pub(super) fn answers(cast: &Cast, desk: u8, task: TaskId, seen: &Report) -> Vec<Note> {
    let fleet = Fleet { alive: vec![seen], ..Fleet::default() };
    let key = cast.keys[usize::from(desk)].clone();
    let mut controller = Controller::new(key, Config::default());
    let mut out = Outbox::new();
    let term = cast.reigns[usize::from(desk)].term;
    let reigns = Input::Reigns { term, members: Vec::new() };
    controller.handle(reigns, &fleet, Instant::ZERO, &mut out);
    let need = cast.spec(cast.job(task.job)).need;
    let ask = Ask {
        task,
        need,
        owner: "user".into(),
        key: None,
        refused: Vec::new(),
        barred: Vec::new(),
    };
    let home = cast.nodes[cast.job(task.job)];
    let received = Input::Received(home, Message::Ask(ask));
    controller.handle(received, &fleet, Instant::ZERO, &mut out);
    // Words about waiting are lost: they decide nothing.
    let granted = |Send(_, message): Send| match message {
        Message::Granted(grant) => Some(Note::Granted { desk, grant }),
        _ => None,
    };
    out.drain().filter_map(granted).collect()
}

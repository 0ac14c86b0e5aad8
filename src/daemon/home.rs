//! The home's side of a task: one tokio task that keeps the stream to the node, for as long as the
//! attempt lives.
//!
//! It decides nothing about the job. The core tells it when to open a stream and when to come back
//! to a lost one; it tells the core what the node answered. In between it moves bytes: output to
//! the attached user, input from them. What it keeps over a lost stream is what makes the
//! resumption exact: how far output was passed on, and the input that the node has not taken.

mod input;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use self::input::Input;
use super::inbox::Inbox;
use super::stream::{Reader, StreamError, TaskStream, Writer, split};
use crate::core::grant::Grant;
use crate::core::job;
use crate::core::signed::Signed;
use crate::core::task::{Command, TaskId};
use crate::wire::task::{Frame, Offsets, Output, ToHome, ToNode};

/// Orders that may wait for one task's stream: a stop, a harder stop, an acknowledgement, a new
/// stream. More than these are not given.
pub(crate) const ORDERS_MAX: usize = 16;

/// Pieces of output between the stream and the attached user.
pub(crate) const PIECES_MAX: usize = 4;

/// What the driver orders.
pub(crate) enum Order {
    /// The outcome is on disk: tell the node.
    Acknowledge,
    /// Here is a stream to the node.
    Connected {
        /// The task that it is for.
        task: TaskId,
        /// The stream.
        stream: TaskStream,
        /// What to say first.
        first: First,
    },
    /// End the task.
    Stop {
        /// Without grace.
        now: bool,
    },
}

impl Order {
    /// Whether it is a stream that has to take the place of one about this task: that of a later
    /// attempt, or of another grant. Streams that were asked for come in any order.
    fn replaces(&self, current: TaskId) -> bool {
        match self {
            Self::Connected { task, first: First::Open(_), .. } => *task >= current,
            Self::Connected { task, first: First::Attach, .. } => *task > current,
            Self::Acknowledge | Self::Stop { .. } => false,
        }
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Acknowledge => "Acknowledge",
            Self::Connected { .. } => "Connected",
            Self::Stop { .. } => "Stop",
        })
    }
}

/// What a new stream is for.
#[derive(Debug)]
pub(crate) enum First {
    /// To come back to the task.
    Attach,
    /// To present a grant.
    Open(Box<Offer>),
}

/// A grant and what to run under it.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// The grant.
    pub(crate) grant: Signed<Grant>,
    /// The job's owner.
    pub(crate) owner: String,
    /// The job's name.
    pub(crate) name: String,
    /// The home's name.
    pub(crate) home_name: String,
    /// What to run.
    pub(crate) command: Command,
}

/// The user that watches a job.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Where output goes. Full: the node waits. Closed: the user is gone, output is dropped.
    pub(crate) output: mpsc::Sender<Piece>,
    /// Where input comes from; its end is the end of input.
    pub(crate) input: mpsc::Receiver<Bytes>,
}

/// A piece of a task's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes.
    Data(Output, Bytes),
    /// Bytes that the node does not keep.
    Gap(Output, u64, u64),
    /// No more comes, though there may be more, and why.
    Unread(String),
}

/// Runs the home's side until the outcome has been acknowledged or the driver lets go.
pub(crate) async fn run(
    attachment: Option<Attachment>,
    mut orders: mpsc::Receiver<Order>,
    inbox: Inbox,
) {
    let (output, source) = match attachment {
        Some(Attachment { output, input }) => (Some(output), Some(input)),
        None => (None, None),
    };
    let mut forward = Forward { task: None, output, passed: Offsets::default(), inbox };
    let mut input = Input::new(source);
    let mut stop = None;
    let mut next = None;
    loop {
        let order = match next.take() {
            Some(order) => order,
            None => match orders.recv().await {
                Some(order) => order,
                None => break,
            },
        };
        let end = match order {
            // Without a stream there is nobody to tell: the node keeps the outcome until it is
            // asked again or prunes it.
            Order::Acknowledge => break,
            // Remembered for the next stream.
            Order::Stop { now } => {
                stop = Some(now || stop == Some(true));
                continue;
            }
            // Asked for before a later attempt was: of no use any more.
            Order::Connected { task, .. } if forward.task.is_some_and(|latest| task < latest) => {
                continue;
            }
            Order::Connected { task, stream, first } => {
                forward.begin(task);
                let (reader, writer) = split(stream);
                let credit = Credit { taken: input.taken(), received: None };
                let (credit_in, credit) = watch::channel(credit);
                let follow = forward.output.is_some().then_some(forward.passed);
                let send = Send { writer, input: &mut input, stop: &mut stop, credit };
                // Whichever direction ends first ends the stream.
                tokio::select! {
                    end = forward.run(reader, credit_in) => end,
                    end = send.run(task, first, follow, &mut orders) => end,
                }
            }
        };
        match end {
            Ok(End::Acknowledged) => break,
            Ok(End::Refused) => {}
            Ok(End::Replaced(order)) => next = Some(*order),
            Err(error) => {
                tracing::debug!(task = ?forward.task, %error, "the stream of a task is lost");
                if let Some(task) = forward.task {
                    forward.inbox.job(job::Input::StreamLost { task }).await;
                }
            }
        }
    }
}

/// How far the node has got with the input.
#[derive(Clone, Copy, Debug)]
struct Credit {
    /// What the task's pipe has taken: never asked for again.
    taken: u64,
    /// What the node had received when the stream was taken up: from there it goes on.
    received: Option<u64>,
}

/// How a stream ends that was not lost.
enum End {
    /// The node knows that its outcome is recorded.
    Acknowledged,
    /// The node does not run the task. The core may send it elsewhere.
    Refused,
    /// The core has sent the job elsewhere meanwhile: this order is to be carried out next.
    Replaced(Box<Order>),
}

/// From the node to the user and the core.
struct Forward {
    /// The attempt that the stream is about.
    task: Option<TaskId>,
    output: Option<mpsc::Sender<Piece>>,
    /// How far output was passed on: from there a lost stream is resumed.
    passed: Offsets,
    inbox: Inbox,
}

impl Forward {
    /// A stream for this attempt: another attempt's output begins anew.
    fn begin(&mut self, task: TaskId) {
        if self.task.replace(task) != Some(task) {
            self.passed = Offsets::default();
        }
    }

    /// Passes on what the node sends until the stream fails or the node refuses. The end of a task
    /// is its acknowledgement, which the other direction sends.
    async fn run(
        &mut self,
        mut reader: Reader,
        credit: watch::Sender<Credit>,
    ) -> Result<End, StreamError> {
        loop {
            match reader.next().await? {
                Frame::Data { output: Some(output), offset, bytes } => {
                    self.pass(output, offset, bytes).await?;
                }
                Frame::Data { output: None, .. } => {
                    return Err(StreamError::Protocol("a node sent input"));
                }
                Frame::Control(message) => {
                    if let Some(end) = self.on_control(message, &credit).await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    async fn pass(&mut self, output: Output, offset: u64, bytes: Bytes) -> Result<(), StreamError> {
        let next = self.passed.of(output);
        if offset != *next {
            return Err(StreamError::Protocol("output is not where it should be"));
        }
        *next += bytes.len() as u64;
        self.give(Piece::Data(output, bytes)).await;
        Ok(())
    }

    /// Gives a piece to the user. One who is gone misses nothing that matters: the output is in
    /// the node's files.
    async fn give(&self, piece: Piece) {
        if let Some(output) = &self.output {
            let _ = output.send(piece).await;
        }
    }

    async fn on_control(
        &mut self,
        message: ToHome,
        credit: &watch::Sender<Credit>,
    ) -> Result<Option<End>, StreamError> {
        let Some(task) = self.task else { return Ok(None) };
        match message {
            ToHome::Accepted { since } => {
                self.inbox.job(job::Input::Accepted { task, since }).await;
            }
            ToHome::Attached { since, stdin_taken, stdin_received } => {
                let received = Some(stdin_received);
                credit.send_replace(Credit { taken: stdin_taken, received });
                self.inbox.job(job::Input::Attached { task, since }).await;
            }
            ToHome::Ended { outcome, at } => {
                // The user's pieces are complete; dropping the sender tells them so.
                self.output = None;
                self.inbox.job(job::Input::Ended { task, outcome, at }).await;
            }
            ToHome::Gap { output, from, to } => {
                let next = self.passed.of(output);
                if from != *next || to < from {
                    return Err(StreamError::Protocol("a gap is not where it should be"));
                }
                *next = to;
                self.give(Piece::Gap(output, from, to)).await;
            }
            ToHome::Refused(refusal) => {
                self.inbox.job(job::Input::Refused { task, refusal }).await;
                return Ok(Some(End::Refused));
            }
            ToHome::StdinTaken(upto) => {
                credit.send_modify(|credit| credit.taken = upto);
            }
            ToHome::Enough => return Err(StreamError::Protocol("a home always wants more")),
            ToHome::Unknown => {
                self.inbox.job(job::Input::UnknownTask { task }).await;
                return Ok(Some(End::Refused));
            }
        }
        Ok(None)
    }
}

/// From the user and the core to the node.
struct Send<'a> {
    writer: Writer,
    input: &'a mut Input,
    /// A stop that was ordered: repeated on every new stream, for the last one may have lost it.
    stop: &'a mut Option<bool>,
    /// How far the node has got with it.
    credit: watch::Receiver<Credit>,
}

impl Send<'_> {
    async fn run(
        mut self,
        task: TaskId,
        first: First,
        follow: Option<Offsets>,
        orders: &mut mpsc::Receiver<Order>,
    ) -> Result<End, StreamError> {
        // Input goes on from where the node says that it stopped; a new task begins at zero.
        let mut cursor = matches!(first, First::Open(_)).then_some(0);
        self.writer.control(&first.into_message(task, follow)).await?;
        if let Some(now) = *self.stop {
            self.writer.control(&ToNode::Stop { now }).await?;
        }
        let mut ended = false;
        loop {
            if let Some(at) = cursor.as_mut() {
                while let Some(bytes) = self.input.again(*at) {
                    self.writer.input(*at, &bytes).await?;
                    *at += bytes.len() as u64;
                }
                if self.input.ends_at(*at) && !ended {
                    ended = true;
                    self.writer.control(&ToNode::StdinEof).await?;
                }
            }
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Stop { now }) => {
                        *self.stop = Some(now);
                        self.writer.control(&ToNode::Stop { now }).await?;
                    }
                    Some(Order::Acknowledge) => {
                        self.writer.control(&ToNode::Acknowledge).await?;
                        self.writer.close().await;
                        return Ok(End::Acknowledged);
                    }
                    Some(order) if order.replaces(task) => {
                        return Ok(End::Replaced(Box::new(order)));
                    }
                    // There is a stream; if it is dead, its end will ask for another.
                    Some(Order::Connected { .. }) => {}
                    None => return Ok(End::Acknowledged),
                },
                Ok(()) = self.credit.changed() => {
                    let credit = *self.credit.borrow_and_update();
                    self.input.take(credit.taken);
                    cursor = cursor.or(credit.received);
                }
                () = self.input.more() => {}
            }
        }
    }
}

impl First {
    fn into_message(self, task: TaskId, follow: Option<Offsets>) -> ToNode {
        match self {
            Self::Attach => ToNode::Attach { task, follow },
            Self::Open(offer) => ToNode::Open {
                grant: offer.grant,
                owner: offer.owner,
                name: offer.name,
                home_name: offer.home_name,
                command: offer.command,
                follow: follow.is_some(),
            },
        }
    }
}

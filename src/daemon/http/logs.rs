//! A job's output, read from the node that has it.

use axum::extract::{ConnectInfo, Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use super::attach::{Stream, Upgrade, frame_of};
use super::jobs::find;
use super::{Api, Peer, Refusal};
use crate::api::JobView;
use crate::api::attach::{self, Frame};
use crate::core::id::NodeId;
use crate::core::task::TaskId;
use crate::core::time::Duration;
use crate::daemon::hands::Streams;
use crate::daemon::home::{PIECES_MAX, Piece};
use crate::daemon::inbox::Found;
use crate::daemon::stream::{StreamError, split};
use crate::wire::task::{Frame as TaskFrame, Output, ToHome, ToNode};

/// How long between tries to reach a node that has the output.
const TRY_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Deserialize)]
pub(super) struct Which {
    #[serde(default)]
    stream: String,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn logs(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(job): Path<String>,
    Query(which): Query<Which>,
    upgrade: Upgrade,
) -> Result<Response, Refusal> {
    let wanted = match which.stream.as_str() {
        "stdout" => (Some(0), None),
        "stderr" => (None, Some(0)),
        "" | "both" => (Some(0), Some(0)),
        other => {
            let message = format!("`{other}` is no output: use stdout, stderr or both");
            return Err(Refusal::bad("bad_stream", message));
        }
    };
    let found = find(&api, &peer, job).await?;
    let view = found.view.clone();
    let pieces = viewer(&api, found, wanted, which.follow);
    Ok(upgrade.accept(async move |stream| {
        if let Some(stream) = stream {
            show(stream, pieces, view).await;
        }
    }))
}

async fn show(mut stream: Stream, mut pieces: mpsc::Receiver<Piece>, view: JobView) {
    while let Some(piece) = pieces.recv().await {
        if attach::write(&mut stream, &frame_of(piece)).await.is_err() {
            return;
        }
    }
    // Whoever reads may be gone.
    let _ = attach::write(&mut stream, &Frame::Ended(Box::new(view))).await;
}

/// Reads a job's output from its node, again and again if the stream is lost.
pub(super) fn viewer(
    api: &Api,
    found: Found,
    wanted: (Option<u64>, Option<u64>),
    follow: bool,
) -> mpsc::Receiver<Piece> {
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    let streams = api.streams.clone();
    let viewer = Viewer { streams, pieces, wanted, follow };
    tokio::spawn(viewer.run(found.changes));
    receiver
}

struct Viewer {
    streams: Streams,
    pieces: mpsc::Sender<Piece>,
    /// The next offset wanted of each output.
    wanted: (Option<u64>, Option<u64>),
    follow: bool,
}

impl Viewer {
    async fn run(mut self, mut changes: watch::Receiver<JobView>) {
        loop {
            let view = changes.borrow_and_update().clone();
            let place = view.node.as_ref().filter(|_| view.state != "starting");
            let place: Option<NodeId> = place.and_then(|node| node.parse().ok());
            match (place, view.id.parse()) {
                (Some(node), Ok(job)) => {
                    let attempt = crate::core::id::Attempt(view.attempt);
                    match self.read(TaskId { job, attempt }, node).await {
                        Ok(()) => return,
                        Err(error) if !self.follow => {
                            let node = view.node_name.as_deref().unwrap_or("its node");
                            return self.unread(format!("{node} cannot be asked: {error}")).await;
                        }
                        Err(error) => tracing::debug!(%error, "output is read again"),
                    }
                    if self.pieces.is_closed() {
                        return;
                    }
                    // The node is back, or the job has ended without it.
                    tokio::select! {
                        () = tokio::time::sleep(TRY_AGAIN) => {}
                        changed = changes.changed() => if changed.is_err() { return },
                    }
                    if changes.borrow().state == "lost" {
                        return self.unread("the job is lost, its node away".into()).await;
                    }
                }
                // It has not run yet, and may never.
                _ if view.is_ended() || !self.follow => return,
                _ => {
                    tokio::select! {
                        changed = changes.changed() => if changed.is_err() { return },
                        () = self.pieces.closed() => return,
                    }
                }
            }
        }
    }

    /// One stream; `Ok` when all that was wanted has been read.
    async fn read(&mut self, task: TaskId, node: NodeId) -> Result<(), StreamError> {
        let stream = self.streams.open(node).await.map_err(std::io::Error::other)?;
        let (mut reader, mut writer) = split(stream);
        let (stdout, stderr) = self.wanted;
        writer.control(&ToNode::View { task, stdout, stderr, follow: self.follow }).await?;
        loop {
            let frame = tokio::select! {
                frame = reader.next::<ToHome>() => frame,
                () = self.pieces.closed() => return Ok(()),
            };
            match frame {
                Ok(TaskFrame::Data { output: Some(output), offset, bytes }) => {
                    self.advance(output, offset, offset + bytes.len() as u64)?;
                    let _ = self.pieces.send(Piece::Data(output, bytes)).await;
                }
                Ok(TaskFrame::Control(ToHome::Gap { output, from, to })) => {
                    self.advance(output, from, to)?;
                    let _ = self.pieces.send(Piece::Gap(output, from, to)).await;
                }
                Ok(TaskFrame::Control(ToHome::Ended { .. } | ToHome::Enough)) => return Ok(()),
                Ok(TaskFrame::Control(ToHome::Unknown)) => {
                    self.unread("its node no longer keeps the output".into()).await;
                    return Ok(());
                }
                Ok(_) => return Err(StreamError::Protocol("a view got something else")),
                Err(error) => return Err(error),
            }
        }
    }

    async fn unread(&self, why: String) {
        // Whoever reads may be gone.
        let _ = self.pieces.send(Piece::Unread(why)).await;
    }

    /// The next piece of an output has to begin where the last one ended.
    fn advance(&mut self, output: Output, from: u64, to: u64) -> Result<(), StreamError> {
        let next = match output {
            Output::Stdout => &mut self.wanted.0,
            Output::Stderr => &mut self.wanted.1,
        };
        if *next != Some(from) || to < from {
            return Err(StreamError::Protocol("output is not where it should be"));
        }
        *next = Some(to);
        Ok(())
    }
}

//! The attached stream of one watching user.
//!
//! A user who goes away does not want the job any more: an attached run ends with its user. Input
//! and output do not wait for each other.

use std::future::Future;

use axum::extract::FromRequestParts;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::TryStreamExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::Refusal;
use super::hangup::Hangup;
use crate::api::JobView;
use crate::api::attach::{self, Frame, Gap};
use crate::core::id::JobId;
use crate::daemon::home::Piece;
use crate::daemon::inbox::{Inbox, Request};
use crate::wire::task::Output;

/// An upgraded connection.
pub(super) type Stream = TokioIo<hyper::upgrade::Upgraded>;

/// A request that wants to become an attached stream.
pub(super) struct Upgrade(OnUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let wants = parts.headers.get(UPGRADE).is_some_and(|value| value == attach::UPGRADE);
        let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| wants);
        upgrade.map(Self).ok_or_else(|| {
            let message = format!("this path speaks `Upgrade: {}`", attach::UPGRADE);
            Refusal(
                StatusCode::UPGRADE_REQUIRED,
                crate::api::ApiError::new("upgrade_required", message),
            )
        })
    }
}

impl Upgrade {
    /// Switches, and goes on with `serve`; without a stream if the user is gone already.
    pub(super) fn accept<F: Future<Output = ()> + Send>(
        self,
        serve: impl FnOnce(Option<Stream>) -> F + Send + 'static,
    ) -> Response {
        tokio::spawn(async move {
            let upgraded = self.0.await;
            if let Err(error) = &upgraded {
                tracing::debug!(%error, "a user is gone before the stream began");
            }
            serve(upgraded.ok().map(TokioIo::new)).await;
        });
        let headers = [
            (CONNECTION, HeaderValue::from_static("upgrade")),
            (UPGRADE, HeaderValue::from_static(attach::UPGRADE)),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
    }
}

/// A user who watches a job.
pub(super) struct Watch {
    pub(super) job: JobId,
    pub(super) changes: watch::Receiver<JobView>,
    /// Output; its end is that there will be no more.
    pub(super) pieces: mpsc::Receiver<Piece>,
    /// Where input goes, if the task wants any.
    pub(super) input: Option<mpsc::Sender<Bytes>>,
    pub(super) inbox: Inbox,
    pub(super) hangup: Hangup,
}

impl Watch {
    /// Serves until the job has ended or its user is gone.
    pub(super) async fn run(self, stream: Option<Stream>) {
        let (job, inbox) = (self.job, self.inbox.clone());
        let ended = match stream.map(tokio::io::split) {
            None => false,
            Some((reader, writer)) => tokio::select! {
                ended = show(self.changes, self.pieces, writer) => ended,
                () = listen(reader, self.input) => false,
                () = self.hangup.wait() => false,
            },
        };
        if !ended {
            tracing::debug!(%job, "its user is gone");
            inbox.tell(Request::Cancel { job, now: false }).await;
        }
    }
}

/// To the user; whether the job's end was told.
async fn show(
    mut changes: watch::Receiver<JobView>,
    mut pieces: mpsc::Receiver<Piece>,
    mut writer: WriteHalf<Stream>,
) -> bool {
    let mut more = true;
    changes.mark_changed();
    loop {
        let frame = tokio::select! {
            biased;
            piece = pieces.recv(), if more => match piece {
                Some(piece) => frame_of(piece),
                None => {
                    more = false;
                    continue;
                }
            },
            changed = changes.changed() => {
                let view = Box::new(changes.borrow_and_update().clone());
                match (view.is_ended(), changed) {
                    // The end comes after the last byte of output.
                    (true, _) => {
                        while let Some(piece) = pieces.recv().await {
                            if attach::write(&mut writer, &frame_of(piece)).await.is_err() {
                                return true;
                            }
                        }
                        // Ended is ended, whether the user hears it or not.
                        let _ = attach::write(&mut writer, &Frame::Ended(view)).await;
                        return true;
                    }
                    // The daemon is stopping; the user comes back to the next one.
                    (false, Err(_)) => return true,
                    (false, Ok(())) => Frame::Job(view),
                }
            }
        };
        if attach::write(&mut writer, &frame).await.is_err() {
            return false;
        }
    }
}

/// From the user: input, until they are gone.
async fn listen(reader: ReadHalf<Stream>, mut input: Option<mpsc::Sender<Bytes>>) {
    let mut frames = attach::frames(reader);
    while let Ok(Some(frame)) = frames.try_next().await {
        match frame {
            Frame::Stdin(bytes) => {
                if let Some(input) = &input {
                    // A task that has ended takes no more; its end is on the way to the user.
                    let _ = input.send(bytes).await;
                }
            }
            Frame::StdinEof => input = None,
            _ => {}
        }
    }
}

/// A piece of output as a frame.
pub(super) fn frame_of(piece: Piece) -> Frame {
    let name = |output| match output {
        Output::Stdout => "stdout".to_owned(),
        Output::Stderr => "stderr".to_owned(),
    };
    match piece {
        Piece::Data(Output::Stdout, bytes) => Frame::Stdout(bytes),
        Piece::Data(Output::Stderr, bytes) => Frame::Stderr(bytes),
        Piece::Unread(why) => Frame::Unread(why),
        Piece::Gap(output, from, to) => Frame::Gap(Gap { output: name(output), from, to }),
    }
}

//! The local API: HTTP on a Unix socket, one file for each kind of thing.

mod attach;
mod jobs;
mod logs;
mod mesh;

use axum::Json;
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::IncomingStream;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::hands::Streams;
use super::inbox::Inbox;
use super::people;
use crate::api::{ApiError, ErrorBody};
use crate::core::id::NodeId;

/// Bytes of a request: a command with its arguments and environment, in base64.
const BODY_MAX: usize = 8 * 1024 * 1024;

/// What handlers need.
#[derive(Clone, Debug)]
pub(super) struct Api {
    inbox: Inbox,
    streams: Streams,
    changes: watch::Receiver<u64>,
    me: NodeId,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    uid: Option<u32>,
}

impl Peer {
    /// What the user is called.
    fn name(self) -> String {
        self.uid.map_or_else(|| "unknown".into(), people::name_of)
    }

    /// Whether it may do whatever the daemon can: it is the daemon's own user, or root.
    fn may_rule(self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.uid.is_some_and(|uid| uid == 0 || uid == own)
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|cred| cred.uid()) }
    }
}

/// All paths.
pub(super) fn router(
    inbox: Inbox,
    streams: Streams,
    changes: watch::Receiver<u64>,
    me: NodeId,
) -> Router {
    Router::new()
        .route("/v1/addresses", get(mesh::addresses))
        .route("/v1/changes", get(mesh::changes))
        .route("/v1/gpus", get(mesh::gpus))
        .route("/v1/jobs", get(jobs::list).post(jobs::submit))
        .route("/v1/jobs/{job}", get(jobs::show))
        .route("/v1/jobs/{job}/attach", post(jobs::attach))
        .route("/v1/jobs/{job}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{job}/logs", get(logs::logs))
        .route("/v1/leave", post(mesh::leave))
        .route("/v1/nodes", get(mesh::nodes))
        .route("/v1/status", get(mesh::status))
        .fallback(async || {
            Refusal(
                StatusCode::NOT_FOUND,
                ApiError::new("no_such_path", "there is nothing at this path"),
            )
        })
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .with_state(Api { inbox, streams, changes, me })
}

/// Serves until the daemon ends.
pub(super) async fn serve(listener: UnixListener, router: Router) {
    let service = router.into_make_service_with_connect_info::<Peer>();
    if let Err(error) = axum::serve(listener, service).await {
        tracing::error!(%error, "the local API has ended");
    }
}

/// A failure as an answer.
#[derive(Debug)]
pub(super) struct Refusal(StatusCode, ApiError);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorBody { error: self.1 })).into_response()
    }
}

impl Refusal {
    /// The daemon is about to stop.
    fn stopping() -> Self {
        let error = ApiError::new("stopping", "the daemon is stopping");
        Self(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// What was asked makes no sense.
    fn bad(code: &str, message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, ApiError::new(code, message))
    }
}

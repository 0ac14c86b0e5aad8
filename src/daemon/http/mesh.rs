//! The mesh: status, nodes, GPUs, and waiting for a change.

use axum::Json;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::{Api, Peer, Refusal};
use crate::api::{Addresses, ApiError, Changes, GpuView, NodeView, Status};
use crate::core::time::Duration;
use crate::daemon::inbox::{Look, Request};

/// How long a wait for a change lasts at most: then the answer is that there was none.
const WAIT: Duration = Duration::from_secs(60);

pub(super) async fn status(State(api): State<Api>) -> Result<Json<Status>, Refusal> {
    api.inbox.look(Look::Status).await.map(Json).ok_or_else(Refusal::stopping)
}

pub(super) async fn nodes(State(api): State<Api>) -> Result<Json<Vec<NodeView>>, Refusal> {
    api.inbox.look(Look::Nodes).await.map(Json).ok_or_else(Refusal::stopping)
}

pub(super) async fn gpus(State(api): State<Api>) -> Result<Json<Vec<GpuView>>, Refusal> {
    api.inbox.look(Look::Gpus).await.map(Json).ok_or_else(Refusal::stopping)
}

pub(super) async fn addresses(State(api): State<Api>) -> Result<Json<Addresses>, Refusal> {
    let status = api.inbox.look(Look::Status).await.ok_or_else(Refusal::stopping)?;
    let full = |address: &String| format!("{address}/p2p/{}", api.me);
    Ok(Json(Addresses { addresses: status.addresses.iter().map(full).collect() }))
}

#[derive(Debug, Deserialize)]
pub(super) struct Since {
    #[serde(default)]
    since: u64,
}

pub(super) async fn changes(
    State(mut api): State<Api>,
    Query(Since { since }): Query<Since>,
) -> Result<Json<Changes>, Refusal> {
    let news = api.changes.wait_for(|seq| *seq > since);
    let seq = match tokio::time::timeout(WAIT, news).await {
        Ok(Ok(seq)) => *seq,
        Ok(Err(_closed)) => return Err(Refusal::stopping()),
        Err(_elapsed) => since,
    };
    Ok(Json(Changes { seq }))
}

pub(super) async fn leave(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
) -> Result<Json<serde_json::Value>, Refusal> {
    if !peer.may_rule() {
        let message = "only the daemon's own user and root may make it leave";
        return Err(Refusal(StatusCode::FORBIDDEN, ApiError::new("not_allowed", message)));
    }
    api.inbox.tell(Request::Leave).await;
    Ok(Json(serde_json::json!({ "leaving": true })))
}

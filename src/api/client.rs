//! Speaks to the daemon of this machine.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::attach;
use super::{Addresses, ApiError, Changes, ErrorBody, GpuView, JobView, NodeView, Status, Submit};

/// Bytes of one answer: a board of thousands of GPUs fits.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// An attached stream.
pub type Attached = TokioIo<hyper::upgrade::Upgraded>;

/// Why the daemon did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It said why.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The connection broke, or what came is no answer of ours.
    #[error("the daemon's answer was lost")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Nobody answers at the socket.
    #[error("no gpuvine daemon answers at {}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A client of one daemon. Each request has its own connection.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon with this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// The daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// This node and its mesh.
    ///
    /// # Errors
    /// As all of these: if the daemon cannot be reached, or refuses.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// The nodes of the mesh.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.get("/v1/nodes").await
    }

    /// The GPUs of the mesh.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn gpus(&self) -> Result<Vec<GpuView>, ClientError> {
        self.get("/v1/gpus").await
    }

    /// The jobs of this home, or with `all` also those that run elsewhere.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn jobs(&self, all: bool) -> Result<Vec<JobView>, ClientError> {
        self.get(&format!("/v1/jobs?all={all}")).await
    }

    /// Where this node can be dialled.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn addresses(&self) -> Result<Addresses, ClientError> {
        self.get("/v1/addresses").await
    }

    /// Waits until something has changed since `since` (0 at first); what to ask with next.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn changes(&self, since: u64) -> Result<u64, ClientError> {
        let changes: Changes = self.get(&format!("/v1/changes?since={since}")).await?;
        Ok(changes.seq)
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn cancel(&self, job: &str, now: bool) -> Result<JobView, ClientError> {
        let path = format!("/v1/jobs/{}/cancel?now={now}", escape(job));
        self.exchange(Method::POST, &path, Bytes::new()).await
    }

    /// Makes the daemon leave the mesh and stop.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn leave(&self) -> Result<(), ClientError> {
        let _: serde_json::Value = self.exchange(Method::POST, "/v1/leave", Bytes::new()).await?;
        Ok(())
    }

    /// Submits a job and watches it.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn run(&self, submit: &Submit) -> Result<Attached, ClientError> {
        let body = serde_json::to_vec(submit).map_err(lost)?;
        self.upgrade(Method::POST, "/v1/jobs", body.into()).await
    }

    /// Watches a job again, from these offsets of its outputs.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn attach(&self, job: &str, out: u64, err: u64) -> Result<Attached, ClientError> {
        let path = format!("/v1/jobs/{}/attach?stdout={out}&stderr={err}", escape(job));
        self.upgrade(Method::POST, &path, Bytes::new()).await
    }

    /// Reads a job's output.
    ///
    /// # Errors
    /// See [`Client::status`].
    pub async fn logs(
        &self,
        job: &str,
        stream: &str,
        follow: bool,
    ) -> Result<Attached, ClientError> {
        let path = format!("/v1/jobs/{}/logs?stream={stream}&follow={follow}", escape(job));
        self.upgrade(Method::GET, &path, Bytes::new()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.exchange(Method::GET, path, Bytes::new()).await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let request = Request::builder().method(method).uri(path);
        let response = self.send(request, body).await?;
        let body = read(response).await?;
        serde_json::from_slice(&body).map_err(lost)
    }

    async fn upgrade(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Attached, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, attach::UPGRADE);
        let response = self.send(request, body).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(lost("the daemon did not switch to the attached stream"));
        }
        Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(lost)?))
    }

    async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<Response<hyper::body::Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::Unreachable { socket: self.socket.clone(), source })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        tokio::spawn(async move {
            // Its failure is also that of the request.
            let _ = connection.with_upgrades().await;
        });
        let request = request
            .header(HOST, "gpuvine")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        if response.status().is_success() || response.status().is_informational() {
            return Ok(response);
        }
        let body = read(response).await?;
        let error: ErrorBody = serde_json::from_slice(&body).map_err(lost)?;
        Err(error.error.into())
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> Result<Bytes, ClientError> {
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_MAX);
    Ok(body.collect().await.map_err(ClientError::Lost)?.to_bytes())
}

fn lost(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Lost(error.into())
}

/// A user's word in a path: everything but letters, digits and `-` is written as its number.
fn escape(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    word.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

//! Jobs: submitting, watching, listing, cancelling.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use data_encoding::BASE64;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::attach::{Upgrade, Watch};
use super::logs::viewer;
use super::{Api, Peer, Refusal};
use crate::api::{ApiError, JobView, Submit};
use crate::core::request::Need;
use crate::core::task::Command;
use crate::daemon::home::{Attachment, PIECES_MAX};
use crate::daemon::inbox::{Draft, Found, Look, NotFound, Request};
use crate::daemon::people;
use crate::wire::task::{CONTROL_MAX, Offsets};

#[derive(Debug, Deserialize)]
pub(super) struct All {
    #[serde(default)]
    all: bool,
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(All { all }): Query<All>,
) -> Result<Json<Vec<JobView>>, Refusal> {
    let look = |reply| Look::Jobs { all, reply };
    api.inbox.look(look).await.map(Json).ok_or_else(Refusal::stopping)
}

pub(super) async fn show(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(job): Path<String>,
) -> Result<Json<JobView>, Refusal> {
    Ok(Json(find(&api, peer, job).await?.view))
}

/// The job that a user means, if it is theirs: root and the daemon's own user see all.
pub(super) async fn find(api: &Api, peer: Peer, prefix: String) -> Result<Found, Refusal> {
    let found = find_any(api, prefix).await?;
    let owner = &found.record.spec.owner;
    // Where the membership names a user, all who may use the socket are that user.
    let is_user = api.streams.own.user().is_some_and(|user| user == *owner);
    if is_user || peer.may_rule() || peer.uid.is_some_and(|uid| people::name_of(uid) == *owner) {
        return Ok(found);
    }
    let message = format!("job {} is {owner}'s", found.view.id);
    Err(Refusal(StatusCode::FORBIDDEN, ApiError::new("not_yours", message)))
}

async fn find_any(api: &Api, prefix: String) -> Result<Found, Refusal> {
    let asked = prefix.clone();
    let look = |reply| Look::Job { prefix, reply };
    match api.inbox.look(look).await.ok_or_else(Refusal::stopping)? {
        Ok(found) => Ok(found),
        Err(NotFound::Unknown) => {
            let error = ApiError::new("no_such_job", format!("there is no job `{asked}` here"));
            let error =
                error.hint("`gpuvine jobs` lists the jobs that were submitted on this node");
            Err(Refusal(StatusCode::NOT_FOUND, error))
        }
        Err(NotFound::Ambiguous(jobs)) => {
            let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            let message = format!("`{asked}` fits several jobs: {}", names.join(", "));
            Err(Refusal(StatusCode::CONFLICT, ApiError::new("ambiguous_job", message)))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Now {
    #[serde(default)]
    now: bool,
}

/// Cancels, and answers when that is known to the core.
pub(super) async fn cancel(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(job): Path<String>,
    Query(Now { now }): Query<Now>,
) -> Result<Json<JobView>, Refusal> {
    let found = find(&api, peer, job).await?;
    let id = found.record.spec.id;
    api.inbox.tell(Request::Cancel { job: id, now }).await;
    Ok(Json(find(&api, peer, id.to_string()).await?.view))
}

/// Submits a job and becomes its attached stream.
pub(super) async fn submit(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    upgrade: Upgrade,
    body: Bytes,
) -> Result<Response, Refusal> {
    if let Err(why) = api.streams.own.may_submit() {
        let error = ApiError::new("may_not_submit", why)
            .hint("join again with a ticket of `gpuvine invite --role node,submit`");
        return Err(Refusal(StatusCode::FORBIDDEN, error));
    }
    let submit: Submit = serde_json::from_slice(&body)
        .map_err(|error| Refusal::bad("bad_request", format!("not a submission: {error}")))?;
    let (output, pieces) = mpsc::channel(PIECES_MAX);
    let (input, stdin) = mpsc::channel(PIECES_MAX);
    let attachment = Attachment { output, input: stdin };
    let forwards = submit.stdin;
    let owner = api.streams.own.user().unwrap_or_else(|| peer.name());
    let draft = Box::new(draft(submit, owner, attachment)?);
    let answer = api.inbox.ask(|reply| Request::Submit { draft, reply }).await;
    let submitted = answer
        .ok_or_else(Refusal::stopping)?
        .map_err(|message| Refusal::bad("not_taken_on", message))?;
    let watch = Watch {
        job: submitted.job,
        changes: submitted.changes,
        pieces,
        input: forwards.then_some(input),
        inbox: api.inbox,
    };
    Ok(upgrade.accept(move |stream| watch.run(stream)))
}

#[derive(Debug, Deserialize)]
pub(super) struct From {
    #[serde(default)]
    stdout: u64,
    #[serde(default)]
    stderr: u64,
}

/// Watches a job again, from these offsets. Its input has ended with the first stream.
pub(super) async fn attach(
    State(api): State<Api>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(job): Path<String>,
    Query(from): Query<From>,
    upgrade: Upgrade,
) -> Result<Response, Refusal> {
    let found = find(&api, peer, job).await?;
    let offsets = Offsets { stdout: from.stdout, stderr: from.stderr };
    let job = found.record.spec.id;
    let changes = found.changes.clone();
    let pieces = viewer(&api, found, (Some(offsets.stdout), Some(offsets.stderr)), true);
    let watch = Watch { job, changes, pieces, input: None, inbox: api.inbox };
    Ok(upgrade.accept(move |stream| watch.run(stream)))
}

/// Bytes of arguments and variables: they must fit into one frame, with all that is around them.
const COMMAND_MAX: usize = CONTROL_MAX / 4 * 3;

/// What the core is told; what users send is checked here.
fn draft(submit: Submit, owner: String, attachment: Attachment) -> Result<Draft, Refusal> {
    let bytes = |text: &String| -> Result<serde_bytes::ByteBuf, Refusal> {
        let decoded = BASE64.decode(text.as_bytes());
        let bytes = decoded.map_err(|error| {
            Refusal::bad("bad_base64", format!("`{text}` is not base64: {error}"))
        })?;
        if bytes.contains(&0) {
            let message = "arguments, variables and directories may not contain NUL bytes";
            return Err(Refusal::bad("nul_byte", message));
        }
        Ok(bytes.into())
    };
    let args = submit.args.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    if args.first().is_none_or(|program| program.is_empty()) {
        return Err(Refusal::bad("no_command", "there is no command to run"));
    }
    let env = submit
        .env
        .iter()
        .map(|(name, value)| Ok((bytes(name)?, bytes(value)?)))
        .collect::<Result<Vec<_>, Refusal>>()?;
    if env.iter().any(|(name, _)| name.is_empty() || name.contains(&b'=')) {
        return Err(Refusal::bad(
            "bad_variable",
            "a variable's name may not be empty or contain `=`",
        ));
    }
    let size: usize =
        args.iter().chain(env.iter().flat_map(|(k, v)| [k, v])).map(|b| b.len()).sum();
    if size > COMMAND_MAX {
        let message = format!(
            "arguments and variables have {size} bytes, {COMMAND_MAX} are allowed: put them in a file"
        );
        return Err(Refusal::bad("command_too_long", message));
    }
    if submit.gpu_model.as_ref().is_some_and(|model| model.len() > 256) {
        return Err(Refusal::bad("model_too_long", "a GPU's model may have 256 bytes"));
    }
    if submit.name.len() > 256 {
        return Err(Refusal::bad("name_too_long", "a job's name may have 256 bytes"));
    }
    Ok(Draft {
        owner,
        name: submit.name,
        need: Need {
            gpus: submit.gpus,
            model: submit.gpu_model,
            memory_bytes: submit.gpu_memory_bytes,
            node: None,
        },
        node: submit.node,
        command: Command {
            args,
            env,
            chdir: submit.chdir.as_ref().map(bytes).transpose()?,
            stdin: submit.stdin,
        },
        attachment: Some(attachment),
    })
}

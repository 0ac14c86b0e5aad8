//! `gpuvine logs`

use std::io;
use std::os::fd::BorrowedFd;

use data_encoding::BASE64;
use futures::TryStreamExt as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::{stderr, stdout};
use serde_json::json;
use tokio_util::codec::FramedRead;

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::attach::{self, Frame, Frames};
use crate::api::client::{Attached, Client, ClientError};
use crate::api::{ApiError, JobView};

/// Print a job's output, as far as its node has it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  gpuvine logs -f 3f9k\n\nWith --json it is one array: pieces of output in base64, and at the end the job."
)]
pub(crate) struct Args {
    /// The job: its id, or the beginning of it
    #[arg(value_name = "JOB")]
    job: String,
    /// Go on until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only standard error
    #[arg(long)]
    stderr: bool,
}

pub(crate) async fn run(args: Args, client: &Client, printer: &Printer) -> Result<Exit, Failure> {
    let which = match (args.stdout, args.stderr) {
        (true, _) => "stdout",
        (_, true) => "stderr",
        _ => "both",
    };
    let stream = client.logs(&args.job, which, args.follow).await?;
    let mut frames = attach::frames(stream);
    if printer.json() {
        return pieces(frames, printer).await;
    }
    let mut unread = None;
    while let Some(frame) = frames.try_next().await? {
        match frame {
            Frame::Stdout(bytes) if write(stdout(), &bytes)? => {
                return Ok(Exit::Done);
            }
            Frame::Stderr(bytes) => {
                write(stderr(), &bytes)?;
            }
            Frame::Gap(gap) => printer.say(&format!(
                "bytes {} to {} of {} are not kept by the node",
                gap.from, gap.to, gap.output
            )),
            Frame::Unread(why) => unread = Some(why),
            Frame::Ended(job) => return ended(&job, unread, printer),
            _ => {}
        }
    }
    // What has been printed is not all: whoever keeps it must hear that.
    Err(ClientError::Lost("the daemon went away before the end of the output".into()).into())
}

/// For programs: one array, printed as it comes, of pieces of output, what is missing, and at the
/// end the job, or why there is no more.
async fn pieces(
    mut frames: FramedRead<Attached, Frames>,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let data =
        |stream: &str, bytes: &[u8]| json!({ "stream": stream, "base64": BASE64.encode(bytes) });
    let (mut before, mut exit) = ("[", None);
    while exit.is_none() {
        let piece = match frames.try_next().await {
            Ok(Some(Frame::Stdout(bytes))) => data("stdout", &bytes),
            Ok(Some(Frame::Stderr(bytes))) => data("stderr", &bytes),
            Ok(Some(Frame::Gap(gap))) => json!({ "missing": gap }),
            Ok(Some(Frame::Unread(why))) => {
                exit = Some(Exit::Failed);
                json!({ "error": ApiError::new("output_incomplete", why) })
            }
            Ok(Some(Frame::Ended(job))) => {
                exit = Some(Exit::Done);
                json!({ "job": job })
            }
            Ok(Some(_)) => continue,
            Ok(None) | Err(_) => {
                exit = Some(Exit::Failed);
                let told = "the daemon went away before the end of the output";
                json!({ "error": ApiError::new("connection_lost", told) })
            }
        };
        printer.line(&format!("{before}{piece}"))?;
        before = ",";
    }
    printer.line("]")?;
    Ok(exit.unwrap_or(Exit::Failed))
}

/// What has been printed may not be all; whoever keeps it must hear that.
fn ended(job: &JobView, unread: Option<String>, printer: &Printer) -> Result<Exit, Failure> {
    if let Some(why) = unread {
        let message = format!("this is not all the output of job {}: {why}", job.id);
        let error = ApiError::new("output_incomplete", message);
        return Err(Failure { exit: Exit::Failed, error });
    }
    if matches!(job.state.as_str(), "waiting" | "starting") {
        let why = job.reason.as_deref().unwrap_or("it has not started");
        printer.say(&format!("job {} has no output yet: {why}", job.id));
    }
    Ok(Exit::Done)
}

/// Writes output as it is; whether the reader is gone. Not through the standard library's buffer,
/// which looks for the ends of lines.
pub(crate) fn write(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<bool> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE) => return Ok(true),
            // Whoever shares it has made it so.
            Err(rustix::io::Errno::AGAIN) => wait_for_room(to)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn wait_for_room(to: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

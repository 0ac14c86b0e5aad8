//! `gpuvine logs`

use data_encoding::BASE64;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::attach::{self, Frame};
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
    let mut stream = client.logs(&args.job, which, args.follow).await?;
    if printer.json() {
        return pieces(stream, printer).await;
    }
    let mut unread = None;
    while let Some(frame) = attach::read(&mut stream).await? {
        match frame {
            Frame::Stdout(bytes) if write(std::io::stdout().lock(), &bytes)? => {
                return Ok(Exit::Done);
            }
            Frame::Stderr(bytes) => {
                write(std::io::stderr().lock(), &bytes)?;
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
async fn pieces(mut stream: Attached, printer: &Printer) -> Result<Exit, Failure> {
    let data =
        |stream: &str, bytes: &[u8]| json!({ "stream": stream, "base64": BASE64.encode(bytes) });
    let (mut before, mut exit) = ("[", None);
    while exit.is_none() {
        let piece = match attach::read(&mut stream).await {
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

/// Writes output as it is; whether the reader is gone.
pub(crate) fn write(mut to: impl std::io::Write, bytes: &[u8]) -> std::io::Result<bool> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(true),
        other => other.map(|()| false),
    }
}

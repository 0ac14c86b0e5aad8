//! `gpuvine run`

mod input;
mod printing;
mod session;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use data_encoding::BASE64;

use self::session::Session;
use super::args::Globals;
use super::exit::{Exit, Failure};
use super::output::Printer;
use crate::api::Submit;
use crate::api::client::Client;

/// Run a command on GPUs of the mesh, and watch it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvine run -- nvidia-smi\n  gpuvine run --gpus 2 --gpu-model a100 --gpu-mem 40G -e WANDB_KEY -- python train.py\n\nStandard input is forwarded, output comes back byte for byte, the exit code is the command's\n(128 + signal if it was killed), 1 if it never ran. Ctrl-C cancels; twice without grace.\nWith --json the command's output goes to standard error, and at the end comes the job as JSON."
)]
pub(crate) struct Args {
    /// How many GPUs, all on one node; 0 for none
    #[arg(short = 'G', long, default_value_t = 1, value_name = "N")]
    gpus: u32,
    /// Part of the GPUs' model name, e.g. a100
    #[arg(long, value_name = "MODEL")]
    gpu_model: Option<String>,
    /// Least memory of each GPU, e.g. 40G (GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    gpu_mem: Option<u64>,
    /// Only this node, by name or id
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// What to call the job [default: the command]
    #[arg(short = 'J', long, value_name = "NAME")]
    name: Option<String>,
    /// Run in this directory of the node, instead of a private new one; `.` is what it is here
    #[arg(short = 'D', long, value_name = "DIR")]
    chdir: Option<OsString>,
    /// Set a variable; without a value, as it is here. May be repeated
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Do not tell on standard error where it runs
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(
    args: Args,
    globals: &Globals,
    client: &Client,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let quiet = args.quiet;
    let submit = submit(args)?;
    Session::new(client, globals.own_folder()?, printer, quiet)?.run(&submit).await
}

/// What goes to the daemon: bytes as bytes.
fn submit(args: Args) -> Result<Submit, Failure> {
    let encode = |text: &[u8]| BASE64.encode(text);
    let program = args.command.first().map(|program| program.to_string_lossy().into_owned());
    let name = args.name.or_else(|| {
        program.map(|program| program.rsplit('/').next().unwrap_or_default().to_owned())
    });
    let mut env = Vec::new();
    for variable in args.env {
        let (name, value) = variable_of(&variable)?;
        env.push((encode(&name), encode(&value)));
    }
    // As srun does: a relative one is the one here, where nodes share their files.
    let directory = args.chdir.as_ref().map(std::path::absolute).transpose()?;
    Ok(Submit {
        name: name.unwrap_or_default(),
        gpus: args.gpus,
        gpu_model: args.gpu_model,
        gpu_memory_bytes: args.gpu_mem,
        node: args.node,
        args: args.command.iter().map(|arg| encode(arg.as_bytes())).collect(),
        env,
        chdir: directory.map(|directory| encode(directory.as_os_str().as_bytes())),
        stdin: true,
    })
}

/// `NAME=VALUE`, or `NAME` as it is set here.
fn variable_of(variable: &OsStr) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let bytes = variable.as_bytes().to_vec();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (bytes[..at].to_vec(), bytes[at + 1..].to_vec()),
        None => match std::env::var_os(variable) {
            Some(value) => (bytes, value.into_vec()),
            None => {
                let name = variable.to_string_lossy().into_owned();
                let told = Failure::usage(format!("-e {name}: it is not set here"));
                return Err(told.hint(format!("give it a value: -e {name}=...")));
            }
        },
    };
    if name.is_empty() {
        let text = variable.to_string_lossy();
        return Err(Failure::usage(format!("-e {text}: a variable needs a name")));
    }
    Ok((name, value))
}

/// A size of memory. Without a unit it would be a riddle: bytes, MiB or GiB?
pub(crate) fn size(text: &str) -> Result<u64, String> {
    // `40.5` would be forty bytes otherwise.
    if text.bytes().any(|byte| byte.is_ascii_digit()) && !text.ends_with(char::is_alphabetic) {
        return Err(format!("`{text}` has no unit: write {text}G for GiB"));
    }
    // As everybody means it who writes 40G for a GPU: binary units.
    let binary = match text.to_ascii_uppercase().trim_end_matches('B') {
        unit if unit.ends_with(['K', 'M', 'G', 'T']) => format!("{unit}iB"),
        _ => text.to_owned(),
    };
    let size: bytesize::ByteSize =
        binary.parse().map_err(|_| format!("`{text}` is not a size: write e.g. 40G"))?;
    match size.as_u64() {
        0 => Err(format!("`{text}` is no memory at all: leave --gpu-mem out")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests;

//! The `gpuvine` program: parse, run, turn the result into an exit code.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1) {
        Some(first) if first == gpuvine::run::KEEPER => gpuvine::run::keeper_main(&arguments[2..]),
        _ => gpuvine::cli::main(arguments),
    }
}

//! The `testnet` program. It starts itself again as each node, and as each node's keepers, so that
//! one command builds and runs everything.

use std::process::ExitCode;

#[cfg(feature = "live")]
fn main() -> ExitCode {
    use std::ffi::OsString;

    use testnet::live::command;

    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1) {
        Some(first) if first == gpuvine::run::KEEPER => gpuvine::run::keeper_main(&arguments[2..]),
        Some(first) if first == command::AS_GPUVINE => {
            arguments.remove(1);
            gpuvine::cli::main(arguments)
        }
        _ => command::main(),
    }
}

/// Without daemons there is the core in virtual time: see [`testnet::world`].
#[cfg(not(feature = "live"))]
fn main() -> ExitCode {
    testnet::world::main()
}

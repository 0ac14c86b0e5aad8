//! The `testnet` program. It starts itself again as each node, and as each node's keepers, so that
//! one command builds and runs everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "live")]
    if let Some(code) = testnet::live::command::as_gpuvine() {
        return code;
    }
    testnet::command::main()
}

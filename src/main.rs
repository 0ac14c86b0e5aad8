//! The `gpuvine` program: parse, run, turn the result into an exit code.

fn main() {}

//! How the programs of both packages are linked.

fn main() {
    // Only this file matters, and cargo looks at that anyway.
    println!("cargo::rerun-if-env-changed=CARGO_CFG_TARGET_ENV");
    // At a fixed address: a position-independent program has forty thousand pointers to mend at
    // each start, which is half of what the start of a short `gpuvine run` costs. Libraries, stack
    // and heap still lie elsewhere each time.
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

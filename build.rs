//! How the programs of both packages are linked.

fn main() {
    // Only this file matters, and cargo looks at that anyway.
    println!("cargo::rerun-if-env-changed=CARGO_CFG_TARGET_FEATURE");
    println!("cargo::rerun-if-env-changed=GPUVINE_PIE");
    // At a fixed address: a position-independent program has forty thousand pointers to mend at
    // each start, which is half of what the start of a short `gpuvine run` costs. Libraries, stack
    // and heap still lie elsewhere each time. Who wants the program itself to as well sets
    // GPUVINE_PIE=1 when building it.
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    let is_static = std::env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|feature| feature == "crt-static"));
    let is_glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_glibc && !is_static && !is("GPUVINE_PIE", "1") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

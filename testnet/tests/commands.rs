//! The `testnet` program itself, as a user starts it: what it prints for programs is whole.

#![cfg(feature = "live")]
#![allow(clippy::unwrap_used, reason = "a test that fails shall say where")]

use std::process::{Command, Stdio};

/// Runs it and answers its standard output, read as JSON.
fn json(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_testnet"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} ended with {}: {told}", output.status);
    assert!(told.is_empty(), "{arguments:?} told a program: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_demo_plays_to_its_end_and_gives_its_figures() {
    let found = json(&["demo", "--json"]);
    assert_eq!(found["tasks_untouched"], found["tasks_before"]);
    for figure in ["join", "first_byte", "short_task"] {
        assert!(found[figure]["median_ms"].as_f64().unwrap() > 0.0, "{figure}");
    }
}

#[test]
fn the_benchmark_measures_everything_beside_its_floors() {
    let small = ["--nodes", "3", "--tasks", "5", "--kills", "1", "--mib", "2", "--seconds", "1"];
    let found = json(&[&["bench", "--json"], &small[..]].concat());
    let spreads = [
        "/floors/spawn",
        "/floors/fdatasync",
        "/join",
        "/latency/start",
        "/latency/first_byte",
        "/latency/exit",
        "/full/each",
        "/death",
        "/failover",
    ];
    for spread in spreads {
        let median = found.pointer(&format!("{spread}/median_ms"));
        assert!(median.and_then(|ms| ms.as_f64()).is_some_and(|ms| ms > 0.0), "{spread}: {found}");
    }
    for rate in ["floors/tcp_mib_s", "floors/libp2p_mib_s", "output_mib_s", "input_mib_s"] {
        let value = found.pointer(&format!("/{rate}"));
        assert!(value.and_then(|v| v.as_f64()).is_some_and(|v| v > 0.0), "{rate}: {found}");
    }
    let in_flight = found["rates"].as_array().unwrap().iter().map(|rate| &rate["in_flight"]);
    assert_eq!(in_flight.collect::<Vec<_>>(), [1, 8, 64]);
    assert!(found["idle"]["resident_mib_max"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_benchmark_of_nothing_is_refused_with_the_reason() {
    let output = Command::new(env!("CARGO_BIN_EXE_testnet"))
        .args(["bench", "--tasks", "0"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told, "testnet: --tasks 0: there would be nothing to measure\n");
}

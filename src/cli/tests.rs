//! The command line as a whole: every word of it has help, every subcommand an example.

use clap::CommandFactory as _;

use super::*;
use crate::api::{GpuView, JobView};

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_subcommand_has_an_example_and_every_argument_help() {
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(example.contains("Example") && example.contains("gpuvine"), "{name}: {example}");
        assert!(command.get_about().is_some(), "{name}");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
        }
    }
}

#[test]
fn a_size_needs_a_unit_and_means_gib() {
    assert_eq!(run::size("40G"), Ok(40 << 30));
    assert_eq!(run::size("40GB"), Ok(40 << 30));
    assert_eq!(run::size("512MiB"), Ok(512 << 20));
    assert!(run::size("40").unwrap_err().contains("40G"));
    assert!(run::size("forty").is_err());
}

fn printer() -> Printer {
    Printer::new(&Globals {
        dir: None,
        socket: None,
        json: false,
        verbose: 0,
        color: args::Color::Never,
    })
}

fn gpu() -> GpuView {
    GpuView {
        node: "12D3".into(),
        node_name: "alpha".into(),
        index: 0,
        uuid: "GPU-1".into(),
        model: "A100".into(),
        memory_bytes: 80 << 30,
        memory_free_bytes: 79 << 30,
        utilization: Some(97),
        state: "leased".into(),
        job: Some("3f9k00000000".into()),
        job_name: Some("train\x1b[2J".into()),
        owner: Some("ada".into()),
        since: Some("2026-12-01T13:00:00.000Z".into()),
        why: None,
    }
}

fn job() -> JobView {
    JobView {
        id: "3f9k00000000".into(),
        name: "train".into(),
        owner: "ada".into(),
        state: "waiting".into(),
        reason: Some("0 of 4 matching GPUs free".into()),
        gpus_needed: 2,
        node: None,
        node_name: None,
        gpus: Vec::new(),
        gpu_uuids: Vec::new(),
        attempt: 1,
        submitted: Some("2026-12-01T13:00:00.000Z".into()),
        started: None,
        ended: None,
        exit_code: None,
        home: "beta".into(),
    }
}

/// An hour after the jobs above began.
const NOW: u64 = 1_796_133_600;

#[test]
fn the_board_is_printed_as_ever() {
    let broken = GpuView {
        index: 1,
        utilization: None,
        state: "broken".into(),
        job: None,
        job_name: None,
        owner: None,
        since: None,
        why: Some("the driver has lost it".into()),
        ..gpu()
    };
    let board = gpus::board(&[gpu(), broken], NOW, &printer());
    // A foreign name cannot clear the screen.
    assert_eq!(board, include_str!("golden/gpus.txt").trim_end());
}

#[test]
fn jobs_are_printed_as_ever() {
    let table = jobs::table(&[job()], NOW, &printer());
    assert_eq!(table, include_str!("golden/jobs.txt").trim_end());
    assert_eq!(jobs::table(&[], NOW, &printer()), "no jobs");
}

#[test]
fn ages_are_said_as_people_do() {
    let at = Some("2026-12-01T13:00:00.000Z");
    assert_eq!(output::ago(at, NOW - 3_600 + 59), "59s");
    assert_eq!(output::ago(at, NOW), "60m");
    assert_eq!(output::ago(at, NOW + 86_400), "25h");
    assert_eq!(output::ago(at, NOW - 7_200), "0s");
    assert_eq!(output::ago(None, NOW), "");
}

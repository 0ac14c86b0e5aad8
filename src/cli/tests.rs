//! What the command line says of itself, and how its tables look.

use clap::CommandFactory as _;

use super::args::Color;
use super::output::{ago, clean};
use super::*;
use crate::api::client::ClientError;
use crate::api::{GpuView, JobView, NodeView, Status};

/// The time at which the tables of these tests are printed: 2026-01-01T12:00:00Z.
const NOW: u64 = 1_767_268_800;

fn printer(color: Color) -> Printer {
    Printer::new(&Globals { dir: None, socket: None, json: false, verbose: 0, color })
}

fn fixture<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

/// Compares with a file that a reviewer can read; the difference is what a user would see.
fn assert_golden(printed: &str, golden: &str) {
    assert_eq!(printed, golden.trim_end(), "it is now:\n{printed}\n");
}

#[test]
fn every_subcommand_says_what_it_does_and_gives_an_example() {
    let cli = Cli::command();
    for command in cli.get_subcommands() {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name} says nothing");
        let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(example.starts_with("Example"), "{name} has no example");
        assert!(example.contains(&format!("gpuvine {name}")), "{name}: {example}");
    }
}

#[test]
fn every_argument_is_explained() {
    let mut cli = Cli::command();
    cli.build();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        for argument in command.get_arguments() {
            let (command, argument, help) =
                (command.get_name(), argument.get_id(), argument.get_help());
            assert!(help.is_some(), "{command} {argument} is not explained");
        }
    }
}

#[test]
fn the_definition_of_the_command_line_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn a_daemon_that_is_not_there_is_exit_code_three_with_what_to_do() {
    let source = std::io::Error::from(std::io::ErrorKind::NotFound);
    let error = ClientError::Unreachable { socket: "/run/x.sock".into(), source };
    let failure = Failure::from(error);
    assert_eq!(failure.exit, Exit::Unreachable);
    assert!(failure.error.message.starts_with("no gpuvine daemon answers at /run/x.sock"));
    assert!(failure.error.hints[0].contains("gpuvine up"), "{:?}", failure.error.hints);
}

#[test]
fn a_socket_that_is_not_for_this_user_is_not_called_a_daemon_that_is_gone() {
    let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let error = ClientError::Unreachable { socket: "/run/x.sock".into(), source };
    let failure = Failure::from(error);
    assert_eq!(failure.exit, Exit::Unreachable);
    assert_eq!(failure.error.message, "this user may not use the daemon's socket /run/x.sock");
    assert!(failure.error.hints[0].contains("group"), "{:?}", failure.error.hints);
}

#[test]
fn foreign_words_cannot_move_the_cursor_or_turn_the_line() {
    assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d\u{202e}e"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}e");
    assert_eq!(clean("Zoë's 木 node"), "Zoë's 木 node");
}

#[test]
fn ages_are_short_and_a_clock_ahead_of_ours_is_now() {
    for (time, words) in [
        ("2026-01-01T12:00:00Z", "0s"),
        ("2026-01-01T11:58:01Z", "119s"),
        ("2026-01-01T11:58:00Z", "2m"),
        ("2026-01-01T10:00:00Z", "2h"),
        ("2025-12-30T12:00:00Z", "2d"),
        ("2026-01-02T12:00:00Z", "0s"),
        ("yesterday", ""),
    ] {
        assert_eq!(ago(Some(time), NOW), words, "{time}");
    }
    assert_eq!(ago(None, NOW), "");
}

#[test]
fn the_board_shows_who_has_what_and_why_not() {
    let gpus: Vec<GpuView> = fixture(include_str!("golden/gpus.json"));
    let printed = gpus::board(&gpus, NOW, &printer(Color::Never));
    assert_golden(&printed, include_str!("golden/gpus.txt"));
}

#[test]
fn jobs_are_listed_with_their_reasons() {
    let jobs: Vec<JobView> = fixture(include_str!("golden/jobs.json"));
    let printed = jobs::table(&jobs, NOW, &printer(Color::Never));
    assert_golden(&printed, include_str!("golden/jobs.txt"));
    assert_eq!(jobs::table(&[], NOW, &printer(Color::Never)), "no jobs");
}

#[test]
fn nodes_are_listed_with_their_roles() {
    let nodes: Vec<NodeView> = fixture(include_str!("golden/nodes.json"));
    let printed = nodes::table(&nodes, &printer(Color::Never));
    assert_golden(&printed, include_str!("golden/nodes.txt"));
}

#[test]
fn the_status_is_words_behind_words() {
    let status: Status = fixture(include_str!("golden/status.json"));
    assert_golden(&status::words(&status), include_str!("golden/status.txt"));
}

#[test]
fn only_the_header_is_coloured_and_only_when_asked() {
    let rows = || vec![vec!["a".to_owned()]];
    assert_eq!(printer(Color::Always).table(&["X"], rows()), "\x1b[1mX\x1b[0m\na");
    assert_eq!(printer(Color::Never).table(&["X"], rows()), "X\na");
}

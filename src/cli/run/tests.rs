//! What a user may write after `gpuvine run`.

use clap::Parser as _;
use proptest::prelude::*;

use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn submission(line: &[&str]) -> Result<Submit, Failure> {
    submit(Line::try_parse_from([&["run"], line].concat()).unwrap().args)
}

#[test]
fn sizes_are_binary_and_need_a_unit() {
    for (text, bytes) in [
        ("40G", 40 << 30),
        ("40g", 40 << 30),
        ("40GB", 40 << 30),
        ("40GiB", 40 << 30),
        ("40Gi", 40 << 30),
        ("1.5T", 3 << 39),
        ("512M", 512 << 20),
        ("8 G", 8 << 30),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    assert_eq!(size("40"), Err("`40` has no unit: write 40G for GiB".into()));
    assert_eq!(size("40.5"), Err("`40.5` has no unit: write 40.5G for GiB".into()));
    for text in ["", "G", "-4G", "0G", "lots", "4X", "4G4"] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn bytes_that_are_no_text_go_to_the_daemon_as_they_are() {
    let odd = OsString::from_vec(vec![b'a', 0xff]);
    let line = [OsString::from("run"), "--".into(), "/bin/cat".into(), odd.clone()];
    let submit = submit(Line::try_parse_from(line).unwrap().args).unwrap();
    assert_eq!(BASE64.decode(submit.args[1].as_bytes()).unwrap(), odd.into_vec());
    assert_eq!((submit.name.as_str(), submit.gpus), ("cat", 1));
}

#[test]
fn flags_behind_the_command_belong_to_the_command() {
    for line in [&["--", "cmd", "--gpus", "9"], &["-q", "cmd", "--gpus", "9"]] {
        let submit = submission(line).unwrap();
        assert_eq!((submit.args.len(), submit.gpus), (3, 1));
    }
}

#[test]
fn a_variable_is_set_or_taken_from_here() {
    let submit = submission(&["-e", "A=b=c", "-e", "PATH", "-e", "E=", "cmd"]).unwrap();
    let text = |text: &String| String::from_utf8(BASE64.decode(text.as_bytes()).unwrap()).unwrap();
    let env: Vec<_> = submit.env.iter().map(|(name, value)| (text(name), text(value))).collect();
    let path = std::env::var("PATH").unwrap();
    let expected = [("A", "b=c"), ("PATH", &path), ("E", "")];
    assert_eq!(env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn a_variable_that_is_not_set_here_or_has_no_name_is_wrong_usage() {
    for variable in ["GPUVINE_TEST_SURELY_NOT_SET", "=x", ""] {
        let failure = submission(&["-e", variable, "cmd"]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{variable}");
    }
}

#[test]
fn a_run_without_a_command_is_refused() {
    assert!(Line::try_parse_from(["run", "--gpus", "1", "--"]).is_err());
}

proptest! {
    #[test]
    fn no_size_panics_and_none_is_nothing(text in "[-0-9. ]{0,8}[a-zA-Z]{0,4}") {
        prop_assert_ne!(size(&text), Ok(0));
    }
}

/// `-G0` was run as a command, after it had waited for a GPU.
#[test]
fn a_flag_before_the_command_is_a_flag_and_a_wrong_one_is_wrong_usage() {
    assert_eq!(submission(&["-G0", "true"]).unwrap().gpus, 0);
    for wrong in [&["--gpu", "1", "true"][..], &["-x", "true"], &["-G2x", "true"]] {
        assert!(Line::try_parse_from([&["run"], wrong].concat()).is_err(), "{wrong:?}");
    }
    let args = submission(&["-G0", "--", "-x", "-G2"]).unwrap().args;
    assert_eq!(args.len(), 2);
}

//! Frames survive, and nothing else is taken for one.

#[cfg(feature = "daemon")]
use futures::TryStreamExt as _;
use proptest::prelude::*;

use super::*;

fn job() -> Box<JobView> {
    let json = r#"{"id":"3f9k00000000","name":"n","owner":"o","state":"running","reason":null,
        "gpus_needed":1,"node":null,"node_name":null,"gpus":[],"gpu_uuids":[],"attempt":1,
        "submitted":null,"started":null,"ended":null,"exit_code":null,"home":"h"}"#;
    Box::new(serde_json::from_str(json).unwrap())
}

fn frames() -> Vec<Frame> {
    vec![
        Frame::Stdin(Bytes::from_static(b"\xff\0")),
        Frame::StdinEof,
        Frame::Stdout(Bytes::from(vec![7; FRAME_MAX])),
        Frame::Stderr(Bytes::new()),
        Frame::Gap(Gap { output: "stdout".into(), from: 1, to: 9 }),
        Frame::Job(job()),
        Frame::Ended(job()),
    ]
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let (head, content) = frame.encode();
    [&head[..], &content[..]].concat()
}

#[test]
fn every_frame_survives() {
    for frame in frames() {
        let (head, content) = frame.encode();
        let (kind, len) = Frame::head(&head).unwrap();
        assert_eq!(len, content.len());
        assert_eq!(Frame::decode(kind, content).unwrap(), frame);
    }
}

#[test]
fn a_length_from_a_lunatic_is_refused() {
    assert!(matches!(
        Frame::head(&[0, 0xff, 0xff, 0xff, 0xff]),
        Err(FrameError::TooLong(0xffff_ffff))
    ));
    let [a, b, c, d] = u32::try_from(FRAME_MAX).unwrap().to_be_bytes();
    assert_eq!(Frame::head(&[0, a, b, c, d]).unwrap(), (0, FRAME_MAX));
}

#[test]
fn an_unknown_kind_is_named() {
    assert!(matches!(Frame::decode(99, Bytes::new()), Err(FrameError::Kind(99))));
}

#[cfg(feature = "daemon")]
#[tokio::test]
async fn frames_that_come_one_behind_the_other_are_read_one_by_one() {
    let bytes: Vec<u8> = frames().iter().flat_map(bytes_of).collect();
    let mut stream = super::frames(&bytes[..]);
    for frame in frames() {
        assert_eq!(stream.try_next().await.unwrap(), Some(frame));
    }
    assert_eq!(stream.try_next().await.unwrap(), None);
}

#[cfg(feature = "daemon")]
#[tokio::test]
async fn a_stream_that_ends_within_a_frame_is_not_a_stream_that_has_ended() {
    let bytes = bytes_of(&Frame::Ended(job()));
    assert_eq!(super::frames(&bytes[..0]).try_next().await.unwrap(), None);
    for cut in 1..bytes.len() {
        assert!(super::frames(&bytes[..cut]).try_next().await.is_err(), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn junk_never_panics(
        head: [u8; HEAD],
        kind: u8,
        junk in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        if let Ok((_, len)) = Frame::head(&head) {
            prop_assert!(len <= FRAME_MAX);
        }
        if let Ok(frame) = Frame::decode(kind, junk.into()) {
            let (head, content) = frame.encode();
            let (kind, _) = Frame::head(&head).unwrap();
            prop_assert_eq!(Frame::decode(kind, content).unwrap(), frame);
        }
    }
}

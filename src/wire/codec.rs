//! CBOR (RFC 8949) of everything that travels, with limits on depth; sizes are limited by frames.

use serde::{Serialize, de::DeserializeOwned};

use super::limits::DEPTH_MAX;

/// Why bytes are not a message. Only a faulty, foreign or lying peer causes it.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not CBOR, not one of our messages, or a signature in it is wrong.
    #[error("the message cannot be read")]
    Malformed(#[from] ciborium::de::Error<std::io::Error>),
    /// The message ends before its frame does.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
}

/// The bytes of a message.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    // Writing to a vector cannot fail, and no message has a `Serialize` that refuses.
    #[expect(clippy::expect_used, reason = "see above")]
    ciborium::into_writer(message, &mut bytes).expect("a message can be encoded");
    bytes
}

/// The message of some bytes. Signatures in it are verified on the way.
///
/// # Errors
/// If the bytes are anything but exactly one message.
pub fn decode<M: DeserializeOwned>(mut bytes: &[u8]) -> Result<M, DecodeError> {
    let message = ciborium::de::from_reader_with_recursion_limit(&mut bytes, DEPTH_MAX)?;
    match bytes.len() {
        0 => Ok(message),
        left => Err(DecodeError::Trailing(left)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::control::{self, Ask, OrderKey, Relayed};
    use crate::core::election::{self, Claim, Why};
    use crate::core::grant::{Grant, Refusal};
    use crate::core::id::{Attempt, GpuUuid, Incarnation, JobId, LeaseSeq, Reign, Term, Version};
    use crate::core::message::{Gossip, Message};
    use crate::core::repair;
    use crate::core::report::testing::{gpu, node, report};
    use crate::core::request::{Best, Need, WaitReason};
    use crate::core::signed::Key;
    use crate::core::task::TaskId;

    fn key() -> Key {
        Key::from_seed(&[1; 32])
    }

    fn grant() -> Grant {
        Grant {
            term: Term(3),
            job: JobId::from_bits(7),
            attempt: Attempt(1),
            home: node(2),
            node: node(1),
            incarnation: Incarnation(4),
            gpus: vec![(GpuUuid("GPU-1".into()), LeaseSeq(9))],
            key: OrderKey { term: Term(3), seq: 4 },
            ttl_ms: 20_000,
        }
    }

    /// One of each kind, by the name of its golden file.
    fn examples() -> Vec<(&'static str, Message)> {
        let task = TaskId { job: JobId::from_bits(7), attempt: Attempt(1) };
        let key_of_order = OrderKey { term: Term(3), seq: 5 };
        let refused = vec![(grant(), Refusal::Taken { gpu: GpuUuid("GPU-1".into()) })];
        let need = Need { gpus: 2, model: Some("a100".into()), ..Need::default() };
        let owner = "ada".to_owned();
        let ask = Ask { task, need, owner, key: Some(key_of_order), refused, barred: Vec::new() };
        let barred = Ask { barred: vec![(node(2), Incarnation(4))], ..ask.clone() };
        let report = key().sign(report(1, vec![gpu("GPU-1", "A100", 80)]));
        let reason = WaitReason::Busy { matching: 4, free: 1, ahead: 2 };
        let reign = Reign { term: Term(3), controller: node(1) };
        let claim = key().sign(Claim { term: Term(3), why: Why::Dead { before: node(2) } });
        let control = |message| Message::Control(message);
        let elect = |message| Message::Election(message);
        vec![
            ("ask", control(control::Message::Ask(ask.clone()))),
            ("ask-barred", control(control::Message::Ask(barred))),
            ("barred", control(control::Message::Barred { task })),
            ("changed", control(control::Message::Changed(report.clone()))),
            ("claim", elect(election::Message::Claim(claim))),
            ("forbidden", control(control::Message::Forbidden { task })),
            ("granted", control(control::Message::Granted(key().sign(grant())))),
            ("infeasible", control(control::Message::Infeasible { task, best: Best::default() })),
            (
                "parts",
                Message::Repair(repair::Message::Parts {
                    after: Some(node(1)),
                    parts: vec![(Some(node(2)), repair::Digest { count: 3, hash: 4 })],
                }),
            ),
            ("ping", elect(election::Message::Ping { seq: 1, follows: Some(reign) })),
            (
                "present",
                control(control::Message::Present {
                    term: Term(3),
                    report: report.clone(),
                    asks: vec![ask],
                }),
            ),
            ("queued", control(control::Message::Queued { task, key: key_of_order, reason })),
            (
                "relay",
                Message::Relay(
                    key().sign(Relayed {
                        to: node(2),
                        message: control::Message::Withdraw { task },
                    }),
                ),
            ),
            (
                "reports",
                Message::Repair(repair::Message::Reports { reports: vec![report], last: true }),
            ),
            (
                "summary",
                Message::Repair(repair::Message::Summary {
                    after: None,
                    upto: Some(node(1)),
                    ages: vec![(node(1), Incarnation(1), Version(2))],
                }),
            ),
            ("suspect", elect(election::Message::Suspect { reign })),
            ("swim", Message::Swim(serde_bytes::ByteBuf::from(vec![1, 2, 3]))),
            ("withdraw", control(control::Message::Withdraw { task })),
        ]
    }

    fn golden(name: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/wire/golden")
            .join(name)
            .with_extension("cbor")
    }

    /// The bytes of version 1 are read for ever. `GPUVINE_BLESS=1` writes them for new messages.
    #[test]
    fn golden_messages_are_written_and_read_as_ever() {
        for (name, message) in examples() {
            let path = golden(name);
            if std::env::var_os("GPUVINE_BLESS").is_some() && !path.exists() {
                std::fs::write(&path, encode(&message)).unwrap();
            }
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(decode::<Message>(&bytes).unwrap(), message, "{name}");
            assert_eq!(encode(&message), bytes, "{name}");
        }
    }

    #[test]
    fn every_truncation_and_every_appendix_is_an_error() {
        for (name, message) in examples() {
            let mut bytes = encode(&message);
            for len in 0..bytes.len() {
                assert!(decode::<Message>(&bytes[..len]).is_err(), "{name} cut at {len}");
            }
            bytes.push(0);
            assert!(matches!(decode::<Message>(&bytes), Err(DecodeError::Trailing(1))), "{name}");
        }
    }

    #[test]
    fn a_depth_bomb_and_a_length_bomb_are_errors() {
        assert!(decode::<Message>(&[0x81; 100_000]).is_err());
        // A byte string of 2^62 bytes: refused without allocating them.
        assert!(decode::<Gossip>(&[0x5b, 0x40, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode::<Message>(&junk);
            let _ = decode::<Gossip>(&junk);
        }
    }
}

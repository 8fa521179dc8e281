//! The bytes on the wire, held fast: a change here is a change of protocol.

use std::io::Cursor;

use proptest::prelude::*;
use stepback_proto::frame::{self, FrameError};
use stepback_proto::{
    Answer, Consent, ConversationLine, FRAME_BYTES_MAX, Failure, FailureKind, Hello, Hook, HookEvent, Item,
    MAGIC, PROTOCOL, Reply, Request, RewindWhat, Selector, Tool, Verb, Welcome, WirePath,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn hello_and_welcome_never_change() {
    let hello = Hello {
        magic: MAGIC,
        protocol: 1,
    };
    assert_eq!(hex(&frame::encode(&hello).unwrap()), "73626b0001000000");
    let welcome = Welcome {
        protocol: 1,
        version: "0.1.0".into(),
        pid: 258,
    };
    assert_eq!(
        hex(&frame::encode(&welcome).unwrap()),
        "010000000500000000000000302e312e3002010000"
    );
}

#[test]
fn requests_and_answers_of_protocol_1() {
    assert_eq!(PROTOCOL, 1, "new bytes need a new number and new golden values");
    let request = Request {
        place: WirePath(b"/p".to_vec()),
        verb: Verb::Rewind {
            id: Some(Selector::Number(7)),
            how: Consent::Yes,
        },
    };
    assert_eq!(
        hex(&frame::encode(&request).unwrap()),
        concat!(
            "0200000000000000",
            "2f70",
            "09000000",
            "01",
            "00000000",
            "0700000000000000",
            "01000000"
        )
    );
    let request = Request {
        place: WirePath(b"/p".to_vec()),
        verb: Verb::RewindAs {
            id: None,
            what: RewindWhat::Conversation,
            fork: true,
            how: Consent::Preview,
        },
    };
    assert_eq!(
        hex(&frame::encode(&request).unwrap()),
        concat!(
            "0200000000000000",
            "2f70",
            "1b000000",
            "00",
            "02000000",
            "01",
            "00000000"
        )
    );
    let conversation = Answer::Item(Item::Conversation(ConversationLine {
        agent: "a".into(),
        session: "s".into(),
        action: "left".into(),
        why: Some("w".into()),
        resume: None,
        fork: None,
        hint: Some("h".into()),
    }));
    assert_eq!(
        hex(&frame::encode(&conversation).unwrap()),
        concat!(
            "01000000",
            "0d000000",
            "0100000000000000",
            "61",
            "0100000000000000",
            "73",
            "0400000000000000",
            "6c656674",
            "01",
            "0100000000000000",
            "77",
            "00",
            "00",
            "01",
            "0100000000000000",
            "68"
        )
    );
    let current = Answer::Item(Item::Current(7));
    assert_eq!(
        hex(&frame::encode(&current).unwrap()),
        concat!("01000000", "0e000000", "0700000000000000")
    );
    let prune = Request {
        place: WirePath(b"/p".to_vec()),
        verb: Verb::Prune {
            roots: true,
            only: vec!["x".into()],
            preview: false,
        },
    };
    assert_eq!(
        hex(&frame::encode(&prune).unwrap()),
        concat!(
            "0200000000000000",
            "2f70",
            "1c000000",
            "01",
            "0100000000000000",
            "0100000000000000",
            "78",
            "00"
        )
    );
    let failure = Answer::Failed(Failure {
        kind: FailureKind::StalePlan,
        message: "m".into(),
        hint: String::new(),
    });
    assert_eq!(
        hex(&frame::encode(&failure).unwrap()),
        concat!(
            "03000000",
            "06000000",
            "0100000000000000",
            "6d",
            "0000000000000000"
        )
    );
    let hook = Verb::Hook(Box::new(Hook {
        agent: "a".into(),
        session: "s".into(),
        transcript: None,
        pid: Some(258),
        event: HookEvent::ToolStart(Tool {
            name: "t".into(),
            edits: vec![],
            destructive: true,
            writes: true,
        }),
    }));
    assert_eq!(
        hex(&frame::encode(&hook).unwrap()),
        concat!(
            "18000000",
            "0100000000000000",
            "61",
            "0100000000000000",
            "73",
            "00",
            "01",
            "02010000",
            "02000000",
            "0100000000000000",
            "74",
            "0000000000000000",
            "01",
            "01"
        )
    );
    let bytes = Answer::Item(Item::Bytes(vec![1, 2]));
    assert_eq!(
        hex(&frame::encode(&bytes).unwrap()),
        concat!("01000000", "01000000", "0200000000000000", "0102")
    );
}

/// Variants that came later stand at the end, so that the numbers before them are what they were.
#[test]
fn later_variants_of_protocol_1() {
    let request = Request {
        place: WirePath(b"/p".to_vec()),
        verb: Verb::Forget {
            paths: vec![WirePath(b"/p/a".to_vec())],
            undo: false,
            preview: true,
        },
    };
    assert_eq!(
        hex(&frame::encode(&request).unwrap()),
        concat!(
            "0200000000000000",
            "2f70",
            "1a000000",
            "0100000000000000",
            "0400000000000000",
            "2f702f61",
            "00",
            "01"
        )
    );
    let damaged = Answer::Item(Item::Damaged {
        what: "r".into(),
        how: "h".into(),
    });
    assert_eq!(
        hex(&frame::encode(&damaged).unwrap()),
        concat!(
            "01000000",
            "0c000000",
            "0100000000000000",
            "72",
            "0100000000000000",
            "68"
        )
    );
    let shared = Answer::Item(Item::SharedStore {
        id: "r".into(),
        others: 2,
    });
    assert_eq!(
        hex(&frame::encode(&shared).unwrap()),
        concat!(
            "01000000",
            "10000000",
            "0100000000000000",
            "72",
            "0200000000000000"
        )
    );
    let note = Answer::Item(Item::Note("n".into()));
    assert_eq!(
        hex(&frame::encode(&note).unwrap()),
        concat!("01000000", "11000000", "0100000000000000", "6e")
    );
    let agent = Answer::Item(Item::SessionAgent {
        session: "s".into(),
        agent: "a".into(),
    });
    assert_eq!(
        hex(&frame::encode(&agent).unwrap()),
        concat!(
            "01000000",
            "0f000000",
            "0100000000000000",
            "73",
            "0100000000000000",
            "61"
        )
    );
    let forgotten = Answer::Done(Reply::Forgotten {
        paths: vec![],
        checkpoints: 2,
        freed_bytes: 3,
        still_held: vec![],
        notes: vec![],
    });
    assert_eq!(
        hex(&frame::encode(&forgotten).unwrap()),
        concat!(
            "02000000",
            "12000000",
            "0000000000000000",
            "0200000000000000",
            "0300000000000000",
            "0000000000000000",
            "0000000000000000"
        )
    );
}

#[test]
fn a_clean_end_differs_from_a_torn_frame() {
    let mut whole = Vec::new();
    frame::write(
        &mut whole,
        &Hello {
            magic: MAGIC,
            protocol: 9,
        },
    )
    .unwrap();
    let mut reader = Cursor::new(&whole);
    assert_eq!(
        frame::read::<Hello>(&mut reader).unwrap(),
        Some(Hello {
            magic: MAGIC,
            protocol: 9
        })
    );
    assert!(frame::read::<Hello>(&mut reader).unwrap().is_none());
    for cut in 1..whole.len() {
        let torn = frame::read::<Hello>(&mut Cursor::new(&whole[..cut]));
        assert!(matches!(torn, Err(FrameError::Io(_))), "cut at {cut}: {torn:?}");
    }
}

#[test]
fn a_length_above_the_limit_is_refused_before_anything_is_read() {
    let prefix = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
    let refused = frame::read::<Hello>(&mut Cursor::new(prefix));
    assert!(matches!(refused, Err(FrameError::TooLarge(_))), "{refused:?}");
    let huge = Answer::Item(Item::Bytes(vec![0; FRAME_BYTES_MAX]));
    assert!(matches!(frame::encode(&huge), Err(FrameError::TooLarge(_))));
}

#[test]
fn lengths_inside_a_frame_cost_no_memory() {
    // A path that says it has 2^62 bytes.
    let mut bytes = (1u64 << 62).to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    assert!(matches!(
        frame::decode::<Request>(&bytes),
        Err(FrameError::Malformed(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = frame::decode::<Hello>(&bytes);
        let _ = frame::decode::<Welcome>(&bytes);
        let _ = frame::decode::<Request>(&bytes);
        let _ = frame::decode::<Answer>(&bytes);
    }

    /// Small first numbers reach into the variants, where random bytes seldom do.
    #[test]
    fn any_variant_with_any_rest_decodes_or_fails(
        place in 0u64..4, verb in 0u32..40, rest in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut bytes = place.to_le_bytes().to_vec();
        bytes.extend(vec![b'/'; usize::try_from(place).unwrap()]);
        bytes.extend(verb.to_le_bytes());
        bytes.extend(&rest);
        if let Ok(request) = frame::decode::<Request>(&bytes) {
            prop_assert_eq!(frame::encode(&request).unwrap(), bytes);
        }
    }
}

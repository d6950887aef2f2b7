//! Invalid datagrams are refused, and the error names the faulty field (docs/FAULTS.md row 29). The
//! tests that every bit of a message is significant are in `src/samples.rs`.

use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, PAIR_BYTES_MAX, VALUE_BYTES_MAX};
use nicekv_proto::{
    ClientId, Datagram, DecodeError, Expiry, Get, HeaderLayout, KeyDigest, KeyspaceId, OpId, Operation,
    Update, stamp_reply_to,
};
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
    Datagram::decode(bytes).map(|_| ())
}

/// A header of 48 bytes for a body of `length` bytes.
fn header_of(opcode: u8, length: usize) -> Vec<u8> {
    let mut bytes = b"NK".to_vec();
    bytes.extend([HeaderLayout::VERSION, opcode]);
    bytes.extend((length as u16).to_be_bytes());
    bytes.resize(48, 0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Decoding is strict: bytes that decode are exactly those to which the message encodes.
    #[test]
    fn random_body_is_refused_or_round_trips(
        opcode in 0u8..80,
        mut body in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..200),
    ) {
        let mut bytes = header_of(opcode, body.len());
        bytes.append(&mut body);
        if let Ok((header, message)) = Datagram::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            header.reply_to.into_iter().for_each(|address| stamp_reply_to(&mut again, address));
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn row_29_noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..=DATAGRAM_BYTES_MAX)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

#[test]
fn row_29_every_length_up_to_the_mtu_is_refused_without_panic() {
    let mut largest = Vec::new();
    largest_update(KEY_BYTES_MAX, PAIR_BYTES_MAX - KEY_BYTES_MAX).encode(&mut largest);
    largest.resize(DATAGRAM_BYTES_MAX + 1, 0);
    for length in 0..=largest.len() {
        let exact = length == 48 + 48 + PAIR_BYTES_MAX;
        assert_eq!(decode(&largest[..length]).is_ok(), exact, "{length} bytes of an update");
        assert!(decode(&vec![0; length]).is_err(), "{length} zeros");
        assert!(decode(&vec![0xff; length]).is_err(), "{length} ones");
    }
}

/// Offset of the key length in an update: behind header, watermark, condition and a flag.
const KEY_LENGTH_AT: usize = 48 + 8 + 25 + 1;
/// Offset of the value length in a set: behind the key length and the operation's code.
const VALUE_LENGTH_AT: usize = KEY_LENGTH_AT + 2 + 1;

static BYTES: [u8; DATAGRAM_BYTES_MAX] = [b'x'; DATAGRAM_BYTES_MAX];

fn largest_update(key: usize, value: usize) -> Update<'static> {
    Update {
        keyspace: KeyspaceId::DEFAULT,
        op: OpId { client: ClientId(1), sequence: 1 },
        digest: KeyDigest([7; 16]),
        reply_to: None,
        watermark: 1,
        condition: Default::default(),
        return_old: false,
        operation: Operation::Set { value: &BYTES[..value], expiry: Expiry::Never },
        key: &BYTES[..key],
    }
}

#[test]
fn row_29_keys_and_values_outside_their_limits_are_refused_by_name() {
    let refused = |key, value, field, found| {
        let mut bytes = Vec::new();
        largest_update(key, value).encode(&mut bytes);
        match decode(&bytes) {
            Err(DecodeError::OutOfRange { field: named, value, .. }) => {
                assert_eq!((named, value), (field, found));
            }
            other => panic!("key of {key} bytes, value of {value}: {other:?}"),
        }
    };
    refused(KEY_BYTES_MAX + 1, 5, "key", KEY_BYTES_MAX + 1);
    refused(5, VALUE_BYTES_MAX + 1, "value", VALUE_BYTES_MAX + 1);
    for key in [PAIR_BYTES_MAX - VALUE_BYTES_MAX, 700, KEY_BYTES_MAX] {
        refused(key, PAIR_BYTES_MAX - key + 1, "value", PAIR_BYTES_MAX - key + 1);
    }
    for key in [0, KEY_BYTES_MAX, KEY_BYTES_MAX + 1] {
        let mut bytes = Vec::new();
        let op = OpId { client: ClientId(1), sequence: 1 };
        let key = &BYTES[..key];
        Get {
            keyspace: KeyspaceId::DEFAULT,
            op,
            digest: KeyDigest([7; 16]),
            reply_to: None,
            forwarded: None,
            key,
            padding: 0,
        }
        .encode(&mut bytes);
        match Datagram::decode(&bytes) {
            Ok((_, Datagram::Get(get))) => assert_eq!((get.key, key.len() <= KEY_BYTES_MAX), (key, true)),
            told => {
                assert!(matches!(told, Err(DecodeError::OutOfRange { field: "key", .. })));
                assert!(key.len() > KEY_BYTES_MAX);
            }
        }
    }
}

#[test]
fn row_29_inconsistent_headers_are_refused_by_name() {
    let mut honest = Vec::new();
    largest_update(3, 3).encode(&mut honest);
    let with = |at: usize, value: &[u8]| {
        let mut bytes = honest.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        decode(&bytes).unwrap_err()
    };
    assert_eq!(decode(&honest), Ok(()));
    assert_eq!(with(0, b"XX"), DecodeError::BadMagic(0x5858));
    assert_eq!(with(2, &[1]), DecodeError::UnsupportedVersion(1));
    for opcode in (0..=255).filter(|opcode| ![1, 2, 3].contains(opcode)) {
        let known = matches!(opcode, 4..=63);
        assert_eq!(with(3, &[opcode]) == DecodeError::UnknownOpcode(opcode), !known, "opcode {opcode}");
    }
    for stated in [0u16, 1, 53, 55, u16::MAX] {
        let expected =
            DecodeError::LengthMismatch { field: "body_length", stated: stated.into(), actual: 54 };
        assert_eq!(with(4, &stated.to_be_bytes()), expected);
    }
    assert_eq!(with(8, &[1]), DecodeError::UnknownValue { field: "reply_to_ip", value: 1 << 24 });
    assert_eq!(with(15, &[1]), DecodeError::UnknownValue { field: "reserved", value: 1 });
    // Wrong lengths within the update: the key or value is longer or shorter than stated.
    for (key, value) in [(4u16, 3u16), (2, 3), (3, 4), (3, 2), (256, 1024), (3, 1024)] {
        let mut bytes = honest.clone();
        bytes[KEY_LENGTH_AT..][..2].copy_from_slice(&key.to_be_bytes());
        bytes[VALUE_LENGTH_AT..][..2].copy_from_slice(&value.to_be_bytes());
        assert!(matches!(decode(&bytes), Err(DecodeError::LengthMismatch { .. })), "{key} {value}");
    }
}

/// The property above is empty unless some of the random bodies are valid.
#[test]
fn bodies_of_zeros_are_valid_for_some_opcodes() {
    let is_valid = |opcode: &u8| decode(&[header_of(*opcode, 40), vec![0; 40]].concat()).is_ok();
    let valid: Vec<u8> = (0..80).filter(is_valid).collect();
    assert!(valid.len() > 3, "{valid:?}");
}

//! Every message survives the wire, and nothing else is taken for one (SCENARIOS 29).

mod messages;

use messages::{datagram, encode_again, header_of};
use nicekv_wire::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use nicekv_wire::{
    ClientId, Datagram, DecodeError, Expiry, Get, KeyDigest, KeyspaceId, OpId, Operation, Update,
};
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
    Datagram::decode(bytes).map(|_| ())
}

/// Strictness: whoever is taken at all is taken for exactly what it says.
fn accepted_only_as_itself(bytes: &[u8]) {
    if let Ok((header, message)) = Datagram::decode(bytes) {
        assert_eq!(encode_again(&header, &message), bytes, "{message:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_message_round_trips(bytes in datagram()) {
        prop_assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
        let (header, message) = Datagram::decode(&bytes).expect("just encoded");
        prop_assert_eq!(encode_again(&header, &message), bytes);
    }

    #[test]
    fn every_truncation_is_refused(bytes in datagram(), cut in any::<prop::sample::Index>()) {
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn trailing_bytes_are_refused(mut bytes in datagram(), tail in prop::collection::vec(any::<u8>(), 1..9)) {
        bytes.extend(tail);
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn a_changed_datagram_is_refused_or_means_what_it_says(
        mut bytes in datagram(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        accepted_only_as_itself(&bytes);
    }

    #[test]
    fn a_body_of_noise_is_refused_or_means_what_it_says(
        opcode in 0u8..48,
        mut body in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..200),
    ) {
        let mut bytes = header_of(opcode, body.len());
        bytes.append(&mut body);
        accepted_only_as_itself(&bytes);
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..=DATAGRAM_BYTES_MAX)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

#[test]
fn every_length_up_to_the_mtu_is_refused_without_panic() {
    let mut largest = Vec::new();
    largest_update(KEY_BYTES_MAX, VALUE_BYTES_MAX).encode(&mut largest);
    largest.resize(DATAGRAM_BYTES_MAX + 1, 0);
    for length in 0..=largest.len() {
        let exact = length == 48 + 40 + KEY_BYTES_MAX + VALUE_BYTES_MAX;
        assert_eq!(decode(&largest[..length]).is_ok(), exact, "{length} bytes of an update");
        assert!(decode(&vec![0; length]).is_err(), "{length} zeros");
        assert!(decode(&vec![0xff; length]).is_err(), "{length} ones");
    }
}

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
fn keys_and_values_outside_their_limits_are_refused_by_name() {
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
    refused(0, 5, "key_length", 0);
    refused(KEY_BYTES_MAX + 1, 5, "key_length", KEY_BYTES_MAX + 1);
    refused(5, VALUE_BYTES_MAX + 1, "value_length", VALUE_BYTES_MAX + 1);
    for key in [0, KEY_BYTES_MAX + 1] {
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
        }
        .encode(&mut bytes);
        assert!(matches!(decode(&bytes), Err(DecodeError::OutOfRange { field: "key_length", .. })));
    }
}

#[test]
fn lies_in_the_header_are_refused_by_name() {
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
        let known = matches!(opcode, 4..=6 | 16..=25 | 32..=38);
        assert_eq!(with(3, &[opcode]) == DecodeError::UnknownOpcode(opcode), !known, "opcode {opcode}");
    }
    for stated in [0u16, 1, 45, 47, u16::MAX] {
        let expected =
            DecodeError::LengthMismatch { field: "body_length", stated: stated.into(), actual: 46 };
        assert_eq!(with(4, &stated.to_be_bytes()), expected);
    }
    assert_eq!(with(8, &[1]), DecodeError::UnknownValue { field: "reply_to_ip", value: 1 << 24 });
    assert_eq!(with(15, &[1]), DecodeError::UnknownValue { field: "reserved", value: 1 });
    // The lengths of the update itself: longer than the datagram, and shorter.
    for (key, value) in [(4u16, 3u16), (2, 3), (3, 4), (3, 2), (256, 1024), (3, 1024)] {
        let lengths = [key.to_be_bytes(), value.to_be_bytes()].concat();
        assert!(matches!(with(48 + 12, &lengths), DecodeError::LengthMismatch { .. }), "{key} {value}");
    }
}

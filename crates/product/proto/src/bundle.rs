//! A bundle: several datagrams of one sender to one destination in one, which saves the cost per
//! datagram. It contains requests of a client for keys of one partition, or the replies to them.
//! The bundle's header holds their common fields:
//!
//! ```text
//!   header │ opcode, sequence, digest?, length, body │ opcode, sequence, digest?, length, body │ …
//! ```
//!
//! A switch routes by the bundle's header alone. Fields that a switch would have to check are
//! therefore not allowed inside: a node accepts requests only, and replies go to the address in the
//! bundle's header.

use crate::bytes::{Reader, flag};
use crate::codec::{self, Bytes, Codec, RestOf};
use crate::declare::{codec_of, layout, message, part};
use crate::header::HeaderLayout;
use crate::limits::{DATAGRAM_BYTES_MAX, PAIR_BYTES_MAX, VALUE_BYTES_MAX};
use crate::quorum::QuorumStore;
#[cfg(test)]
use crate::samples::Random;
use crate::{ClientId, DecodeError, Header, KeyDigest, KeyspaceId, OpId, Opcode, Reply, Update};
use alloc::vec::Vec;
use core::mem::size_of;

message! {
    /// From a client to a vnode, or from a node to a client that sends bundles itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bundle<'a>: Bundle {
        header {
            /// Common keyspace.
            keyspace: KeyspaceId,
            /// Op of the first datagram; all have the same client.
            op: OpId,
            /// Digest of the first datagram.
            digest: KeyDigest,
        }
        body {
            /// The datagrams, written by [`append_bundled`].
            bundled: &'a [u8] as RestOf<Bundled<'static>>,
        }
    }
}

part! {
    /// A datagram without the fields in the bundle's header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bundled<'a> {
        /// Type of the body.
        opcode: Opcode,
        /// Sequence of the op.
        sequence: u64,
        /// Digest of the key; `None` if zero.
        digest: Option<KeyDigest> as OptionalDigest,
        /// Body.
        body: &'a [u8] as Bytes<0, { BUNDLED_BYTES_MAX - BUNDLED_FIXED_BYTES }>,
    }
}

/// Length of an optional digest, in bytes.
pub struct OptionalDigest;

impl Codec for OptionalDigest {
    type Value<'a> = Option<KeyDigest>;
    type Layout = u8;

    fn layout(digest: &Option<KeyDigest>) -> u8 {
        digest.is_some().into()
    }

    fn append_tail(digest: &Option<KeyDigest>, out: &mut Vec<u8>) {
        if let Some(digest) = digest {
            out.extend_from_slice(&digest.0);
        }
    }

    fn read<'a>(
        field: &'static str,
        present: &u8,
        tail: &mut Reader<'a>,
    ) -> Result<Option<KeyDigest>, DecodeError> {
        match flag(field, *present)? {
            true => tail.layout(field).map(|digest| Some(KeyDigest(digest))),
            false => Ok(None),
        }
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Option<KeyDigest> {
        random.coin().then(|| KeyDigest::sample(random))
    }
}

/// Overhead of a datagram in a bundle, in bytes.
const BUNDLED_FIXED_BYTES: usize = 12;
/// Most bytes in a bundle.
pub const BUNDLED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Header::BYTES;

/// Bundling makes no datagram longer, so any request and reply fits.
const _: () = {
    assert!(BUNDLED_FIXED_BYTES + size_of::<KeyDigest>() <= Header::BYTES);
    assert!(Update::FIXED_BYTES + PAIR_BYTES_MAX <= BUNDLED_BYTES_MAX);
    assert!(QuorumStore::FIXED_BYTES + PAIR_BYTES_MAX <= BUNDLED_BYTES_MAX);
    assert!(Reply::FIXED_BYTES + VALUE_BYTES_MAX <= BUNDLED_BYTES_MAX);
};

/// Fields that all datagrams of a bundle must share, apart from their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    keyspace: KeyspaceId,
    client: ClientId,
}

impl Common {
    /// The common fields of an encoded datagram; `None` if it cannot be bundled.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let header = HeaderLayout::peek(datagram).filter(|header| header.reply_to().is_none())?;
        Some(Self { keyspace: KeyspaceId(header.keyspace.get()), client: ClientId(header.client.get()) })
    }
}

/// Bytes that an encoded datagram takes in a bundle.
pub fn bundled_bytes(datagram: &[u8]) -> usize {
    let has_digest = HeaderLayout::peek(datagram).is_some_and(|header| header.digest != [0; 16]);
    let digest = if has_digest { size_of::<KeyDigest>() } else { 0 };
    BUNDLED_FIXED_BYTES + digest + datagram.len().saturating_sub(Header::BYTES)
}

/// Appends an encoded datagram to [`Bundle::bundled`]; ignores bytes that are no valid datagram.
pub fn append_bundled(datagram: &[u8], out: &mut Vec<u8>) {
    let Ok((header, body)) = Header::decode(datagram) else { return };
    let digest = Some(header.digest).filter(|digest| *digest != KeyDigest::default());
    let bundled = Bundled { opcode: header.opcode, sequence: header.op.sequence, digest, body };
    codec::append::<Bundled<'static>>(&bundled, out);
}

impl<'a> Bundle<'a> {
    /// Header and undecoded body of each datagram, with the reply address of the bundle.
    pub fn datagrams(&self, bundle: &Header) -> impl Iterator<Item = (Header, &'a [u8])> + use<'a> {
        let (mut reader, bundle) = (Reader::new(self.bundled), *bundle);
        core::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let read = codec::read::<Bundled<'static>>("bundled", &mut reader);
            let Bundled { opcode, sequence, digest, body } = read.expect("checked by decode");
            let op = OpId { sequence, ..bundle.op };
            Some((Header { opcode, op, digest: digest.unwrap_or_default(), ..bundle }, body))
        })
    }
}

impl Bundle<'_> {
    /// Writes a bundle to `out`, which is cleared; `bundle` [appends](append_bundled) the content,
    /// whose first datagram is `first`.
    pub fn encode_with(first: &[u8], out: &mut Vec<u8>, bundle: impl FnOnce(&mut Vec<u8>)) {
        if let Ok((first, _)) = Header::decode(first) {
            Header { opcode: Opcode::Bundle, ..first }.encode(out, bundle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Get, Status};

    const CLIENT: ClientId = ClientId(7);

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out);
        out
    }

    fn op(sequence: u64) -> OpId {
        OpId { client: CLIENT, sequence }
    }

    fn get(sequence: u64) -> Vec<u8> {
        let (keyspace, digest) = (KeyspaceId(3), KeyDigest([sequence as u8; 16]));
        let get = Get {
            keyspace,
            op: op(sequence),
            digest,
            reply_to: None,
            forwarded: None,
            key: b"k",
            padding: 0,
        };
        encoded(|out| get.encode(out))
    }

    /// Bundles these datagrams, and decodes the bundle again.
    fn unbundled(datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let bytes: usize = datagrams.iter().map(|datagram| bundled_bytes(datagram)).sum();
        let bundle = encoded(|out| {
            Bundle::encode_with(&datagrams[0], out, |out| {
                datagrams.iter().for_each(|datagram| append_bundled(datagram, out));
            });
        });
        assert_eq!(bundle.len(), Header::BYTES + bytes);
        let (header, body) = Header::decode(&bundle).unwrap();
        let decoded = <Bundle<'_> as crate::declare::Message<'_>>::decode(&header, body).unwrap();
        assert_eq!(encoded(|out| decoded.encode(out)), bundle);
        let whole = |(header, body): (Header, &[u8])| encoded(|out| header.with_body(body, out));
        decoded.datagrams(&header).map(whole).collect()
    }

    #[test]
    fn bundle_round_trips() {
        let requests = [get(1), get(2)];
        assert_eq!(unbundled(&requests), requests);
        let reply = |sequence| encoded(|out| Reply::bare(op(sequence), Status::Busy).encode(out));
        let replies = [reply(1), reply(2), reply(9)];
        assert_eq!(unbundled(&replies), replies);
        assert_eq!(bundled_bytes(&replies[0]), Reply::FIXED_BYTES - 36);
    }

    #[test]
    fn bundle_requires_equal_common_fields() {
        let mut stamped = get(1);
        assert_eq!(Common::of(&stamped), Common::of(&get(2)));
        crate::stamp_reply_to(&mut stamped, "10.0.0.1:1".parse().unwrap());
        assert_eq!(Common::of(&stamped), None);
        let reply = |client| {
            let op = OpId { client, sequence: 1 };
            Common::of(&encoded(|out| Reply::bare(op, Status::Ok).encode(out)))
        };
        assert_ne!(reply(CLIENT), reply(ClientId(8)));
        assert_ne!(reply(CLIENT), Common::of(&get(1)));
        assert_eq!(Common::of(&[0; 60]), None);
    }
}

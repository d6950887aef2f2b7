//! Several datagrams of one sender to one place as one, so that what a datagram costs on its way is paid once: requests of one client for
//! keys of the same partition, and the replies to them.
//!
//! A switch sees the header of the bundle alone, and routes it by that. So what is inside may say nothing that the switch would
//! have to check: a node takes requests only, and replies go where the bundle's header says.

use crate::bytes::Reader;
use crate::codec::{self, Bytes, RestOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::quorum::QuorumStore;
use crate::{Header, KeyDigest, KeyspaceId, Reply, Update};
use alloc::vec::Vec;

message! {
    /// From a client to a vnode, or from a node to a client that sends such itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bundle<'a>: Bundle {
        header {
            /// That of all requests.
            keyspace: KeyspaceId,
            /// Digest of the first request's key; zero in a bundle of replies.
            digest: KeyDigest,
        }
        body {
            /// The datagrams, as [`append_bundled`] writes them.
            bundled: &'a [u8] as RestOf<Bundled<'static>>,
        }
    }
}

part! {
    /// A whole datagram.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Bundled<'a> {
        /// Header and body.
        datagram: &'a [u8] as Bytes<{ Header::BYTES }, { BUNDLED_BYTES_MAX - BUNDLED_FIXED_BYTES }>,
    }
}

/// Bytes that a datagram takes in a bundle, besides its own.
pub const BUNDLED_FIXED_BYTES: usize = 2;
/// Most bytes of all that is bundled.
pub const BUNDLED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Header::BYTES;

/// Every request and every reply can be bundled.
const _: () = {
    let longest = BUNDLED_BYTES_MAX - BUNDLED_FIXED_BYTES;
    assert!(Update::FIXED_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX <= longest);
    assert!(QuorumStore::FIXED_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX <= longest);
    assert!(Reply::FIXED_BYTES + VALUE_BYTES_MAX <= longest);
};

impl<'a> Bundle<'a> {
    /// The datagrams. Nobody has looked into them.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.bundled);
        core::iter::from_fn(move || {
            let more = !reader.is_empty();
            let read = |reader: &mut _| codec::read::<Bundled<'static>>("bundled", reader);
            more.then(|| read(&mut reader).expect("checked by decode").datagram)
        })
    }
}

impl Bundle<'_> {
    /// Writes a bundle to `out`, which is cleared, of what `bundle` [appends](append_bundled).
    pub fn encode_with(
        keyspace: KeyspaceId,
        digest: KeyDigest,
        out: &mut Vec<u8>,
        bundle: impl FnOnce(&mut Vec<u8>),
    ) {
        Bundle { keyspace, digest, bundled: &[] }.header().encode(out, bundle);
    }
}

/// Appends a datagram to what will be [`Bundle::bundled`].
pub fn append_bundled(datagram: &[u8], out: &mut Vec<u8>) {
    codec::append::<Bundled<'static>>(&Bundled { datagram }, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_bundled_is_what_is_found() {
        let (one, other) = ([1; Header::BYTES], [2; 100]);
        let mut bundled = Vec::new();
        append_bundled(&one, &mut bundled);
        append_bundled(&other, &mut bundled);
        assert_eq!(bundled.len(), one.len() + other.len() + 2 * BUNDLED_FIXED_BYTES);
        let bundle = Bundle { keyspace: KeyspaceId(3), digest: KeyDigest::default(), bundled: &bundled };
        assert!(bundle.datagrams().eq([&one[..], &other[..]]));
        let (mut at_once, mut in_two_steps) = (vec![7], Vec::new());
        Bundle::encode_with(bundle.keyspace, bundle.digest, &mut at_once, |out| {
            append_bundled(&one, out);
            append_bundled(&other, out);
        });
        bundle.encode(&mut in_two_steps);
        assert_eq!(at_once, in_two_steps);
    }
}

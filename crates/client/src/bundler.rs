//! Requests for keys of the same partition in one datagram.
//!
//! ```text
//!   next ─▶ by ring, keyspace and first bits of the vnode ─▶ one: as it is; several: a bundle
//! ```
//!
//! A client knows no partitions, only into how many its keyspaces were divided when it was configured. Where that is out of date, a bundle
//! reaches nodes that have not all of its keys; these drop the others, which are sent again as they are.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::bundle::{BUNDLED_BYTES_MAX, BUNDLED_FIXED_BYTES, Bundle, append_bundled};
use nicekv_wire::{HeaderLayout, KeyDigest, KeyspaceId};

/// Datagrams that are looked at before the first is sent.
const LOOKED_AT_MAX: usize = 256;

/// A request on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Where it goes.
    pub(crate) to: SocketAddrV4,
    /// Into how many parts its keyspace is divided, as a power of two; `None`: it is sent alone.
    pub(crate) partition_bits: Option<u32>,
}

/// Requests for one part of a keyspace.
#[derive(Clone, Debug, Default)]
struct Group {
    count: usize,
    bundled: Vec<u8>,
}

/// What requests have in common that may be bundled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    to: SocketAddrV4,
    keyspace: KeyspaceId,
    /// The first bits of the digest.
    part: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundler {
    groups: VecDeque<(Kind, Group)>,
    /// Buffers to be used again.
    spare: Vec<Group>,
}

impl Bundler {
    /// Writes the next datagram to `out`, of those that `next` has.
    pub(crate) fn poll(
        &mut self,
        out: &mut Vec<u8>,
        mut next: impl FnMut(&mut Vec<u8>) -> Option<Outgoing>,
    ) -> Option<SocketAddrV4> {
        if self.groups.is_empty() {
            for _ in 0..LOOKED_AT_MAX {
                let Some(outgoing) = next(out) else { break };
                let Some(bits) = outgoing.partition_bits else { return Some(outgoing.to) };
                self.take_in(outgoing.to, bits, out);
            }
        }
        let (kind, group) = self.groups.pop_front()?;
        let first = &group.bundled[BUNDLED_FIXED_BYTES..];
        if group.count == 1 {
            out.clear();
            out.extend_from_slice(first);
        } else {
            let digest = HeaderLayout::peek(first).map(|header| KeyDigest(header.digest)).unwrap_or_default();
            Bundle { keyspace: kind.keyspace, digest, bundled: &group.bundled }.encode(out);
        }
        self.spare.push(group);
        Some(kind.to)
    }

    fn take_in(&mut self, to: SocketAddrV4, bits: u32, datagram: &[u8]) {
        let header = HeaderLayout::peek(datagram).expect("encoded here");
        let [a, b, c, d, ..] = header.digest;
        let part = u32::from_be_bytes([a, b, c, d]).checked_shr(u32::BITS - bits).unwrap_or(0);
        let kind = Kind { to, keyspace: KeyspaceId(header.keyspace.get()), part };
        let bytes = datagram.len() + BUNDLED_FIXED_BYTES;
        let has_room =
            |(of, group): &(Kind, Group)| *of == kind && group.bundled.len() + bytes <= BUNDLED_BYTES_MAX;
        let known = self.groups.iter().position(has_room);
        let index = known.unwrap_or_else(|| {
            let mut group = self.spare.pop().unwrap_or_default();
            group.bundled.clear();
            self.groups.push_back((kind, Group { count: 0, ..group }));
            self.groups.len() - 1
        });
        let group = &mut self.groups[index].1;
        append_bundled(datagram, &mut group.bundled);
        group.count += 1;
    }
}

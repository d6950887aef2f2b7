//! Hot keys: stamps in requests, and messages of copy holders and primaries to the switch (KVSwitch
//! §4.2; rules H1, H2, H4 and H6).
//!
//! ```text
//!   client   header │ room = 2 │ 16 bytes of zeros │ body            a get, or an update
//!   switch                     │ instance, seen    │                 of the key's hot entry; zeros if it has none
//!
//!   holder  ──HotConfirm──▶ switch                  my copy is of this instance, and of this number
//!   primary ──HotClose────▶ switch ──HotClosed──▶ primary          from here on every stamp is of this number, or a later one
//! ```
//!
//! As with chain headers, the client leaves room, and the last switch before the receiver fills it,
//! whatever it contained. A request that has bypassed every switch has an untrusted stamp; switches
//! therefore let no stamped request through to a server's own address. All three messages are sent
//! to the key's unicast vnode, as its gets are, so that they reach the switch that all traffic of
//! the key's primary crosses (H8), which consumes them.
//!
//! Nodes exchange the copies, and the leases during which they may serve them (H5, H7):
//!
//! ```text
//!   metadata ──HotAssign──▶ primary        these nodes are to have copies, of this instance
//!   primary  ──HotCopy, HotDrop──▶ holder
//!   primary  ──HotPulse──▶ holder ──HotPulsed──▶ primary      asks for the holder's clock; until when it may serve copies of this serial
//! ```
//!
//! The switch may hold a copy, too: a prepared reply (H9). The primary sends it to the key's vnode,
//! like a close:
//!
//! ```text
//!   primary  ──HotValue──▶ switch
//!   primary  ──HotLease──▶ switch ──HotLeased──▶ primary
//! ```

use crate::DecodeError;

use crate::c_layout::{c_type, layout_for_c};
use crate::codec::{Bytes, Key, List, Rest};
use crate::declare::{codec_of, layout, message};
use crate::limits::{DATAGRAM_BYTES_MAX, KERNEL_KEY_BYTES_MAX, PAIR_BYTES_MAX, VALUE_BYTES_MAX};
use crate::recovery::Entry;
use crate::repair::{StoredEntry, check_stored};
pub use crate::stamp::{Stamp, StampLayout};
use crate::{Header, KeyDigest, KeyspaceId, Reply, Term};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::SocketAddrV4;
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most nodes with copies of one hot key.
pub const HOT_HOLDERS_MAX: usize = 31;

layout_for_c! {
    /// A [`HotValue`] behind the header; the key and then the reply, up to the end, follow.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct HotValueLayout {
        /// Instance of the copy's label.
        pub instance: U64,
        /// Count of the copy's label.
        pub seen: U64,
        /// Serial of the primary's leases that cover the copy.
        pub serial: U64,
        /// Length of the key in bytes.
        pub key_length: U16,
        /// Zero.
        pub reserved: [u8; 6],
    }
}

layout_for_c! {
    /// A [`HotLease`] or its answer, behind the header.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct HotLeaseLayout {
        /// Identifies the switch's process, from its start until its tables are lost.
        pub nonce: U64,
        /// Time on the switch's boot-time clock.
        pub time_ns: U64,
        /// Serial of the leases.
        pub serial: U64,
    }
}

const _: () = assert!(size_of::<HotValueLayout>() == HotValue::FIXED_BYTES - Header::BYTES);
const _: () = assert!(size_of::<HotLeaseLayout>() == HotLease::FIXED_BYTES - Header::BYTES);

message! {
    /// Label of the sender's copy of a hot key (H3): the switch may redirect gets whose stamp has
    /// this instance and at most this count. It steers load only; correctness does not depend on it
    /// (H6).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotConfirm: HotConfirm where is_of_an_instance {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Label of the copy.
            stamp: Stamp,
        }
    }
}

message! {
    /// The primary asks for the switch's count, and raises it as an update would, unless it is
    /// already above the given one (H4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotClose: HotClose where is_of_an_instance {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Instance, and count up to which copies may exist; count 0 only asks.
            stamp: Stamp,
        }
    }
}

message! {
    /// The answer: all later gets and updates carry at least this count. The maximum means that the
    /// switch has removed the instance, and no get will carry it again. A switch that does not know
    /// the instance yet does not answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotClosed: HotClosed where is_of_an_instance {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// The instance and its count.
            stamp: Stamp,
        }
    }
}

message! {
    /// Nodes that should hold copies of a hot key. It steers load only: whatever it says, the
    /// primary stays safe.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HotAssign: HotAssign where is_of_an_instance {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Term of the leader; a node refuses older terms.
            term: Term,
            /// Instance of the hot entry; a node refuses older instances.
            instance: u64,
            /// Nodes that should hold copies; empty ends copying.
            holders: Vec<SocketAddrV4> as List<u8, SocketAddrV4, HOT_HOLDERS_MAX>,
            /// Whether the switch should hold a copy, too (H9).
            in_switch: bool => 6 zeros,
        }
    }
}

message! {
    /// A copy of a hot key (H3): valid for gets stamped with this instance and at most this count,
    /// within the lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotCopy<'a>: HotCopy where is_possible {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Label of the copy.
            stamp: Stamp,
            /// Serial of the primary's leases that cover the copy.
            serial: u64,
            /// Address that reaches the switch.
            vring: SocketAddrV4,
            /// The key.
            key: &'a [u8] as Key,
            /// The value in its stored form.
            entry: &'a [u8] as StoredEntry,
        }
    }
}
const _: () = assert!(HotCopy::FIXED_BYTES + Entry::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);

message! {
    /// Copies of keys with this digest, up to this instance, are obsolete. A lost message costs the
    /// holder memory only.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotDrop: HotDrop {
        header {
            /// Keyspace of the keys.
            keyspace: KeyspaceId,
            /// Digest of the keys.
            digest: KeyDigest,
        }
        body {
            /// The newest obsolete instance.
            instance: u64,
        }
    }
}

message! {
    /// The primary leases its copies to a holder for some time, and asks for the holder's clock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotPulse: HotPulse {
        header {}
        body {
            /// Serial of the copies that are leased.
            serial: u64,
            /// Process of the holder; 0: unknown yet, so that nothing is leased.
            nonce: u64,
            /// Last known time on that process's boot-time clock.
            clock_ns: u64,
            /// Duration of the lease from then on; 0: no lease.
            lease_ns: u64,
        }
    }
}

message! {
    /// The answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotPulsed: HotPulsed {
        header {}
        body {
            /// Process of the holder.
            nonce: u64,
            /// Time on its boot-time clock.
            clock_ns: u64,
            /// Serial whose leases it accepts now; copies of earlier serials are no longer served.
            /// 0: none.
            serial: u64,
        }
    }
}

message! {
    /// A prepared reply for the switch (H9): valid for gets while the switch's count of that
    /// instance is exactly this one, within the lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotValue<'a>: HotValue where is_of_an_instance {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Label of the copy.
            stamp: Stamp,
            /// Serial of the primary's leases that cover the copy.
            serial: u64,
            /// The key; longer keys are never held by switches.
            key: &'a [u8] as Bytes<1, KERNEL_KEY_BYTES_MAX> => 6 zeros,
            /// Body of the reply to a get.
            reply: &'a [u8] as Rest<REPLY_BODY_BYTES_MAX>,
        }
    }
}

/// Longest body of a prepared reply.
pub const REPLY_BODY_BYTES_MAX: usize = Reply::FIXED_BYTES - Header::BYTES + VALUE_BYTES_MAX;
const _: () =
    assert!(HotValue::FIXED_BYTES + KERNEL_KEY_BYTES_MAX + REPLY_BODY_BYTES_MAX <= DATAGRAM_BYTES_MAX);

message! {
    /// The primary leases its copies to the switch until the given time, and asks for the switch's
    /// clock, as [`HotPulse`] does. It is sent for any key that the primary leads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotLease: HotLease {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Process of the switch; 0: unknown yet, so that nothing is leased.
            nonce: u64,
            /// End of the lease on the switch's boot-time clock.
            until_ns: u64,
            /// Serial of the copies that are leased.
            serial: u64,
        }
    }
}

message! {
    /// The answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotLeased: HotLeased {
        header {
            /// Keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Identifies the switch's process, from its start until its tables are lost.
            nonce: u64,
            /// Time on the switch's boot-time clock.
            clock_ns: u64,
            /// Copied from the request.
            serial: u64,
        }
    }
}

fn is_of_an_instance(stamp: Stamp) -> Result<(), DecodeError> {
    match stamp.instance {
        0 => Err(DecodeError::UnknownValue { field: "instance", value: 0 }),
        _ => Ok(()),
    }
}

impl HotAssign {
    fn is_of_an_instance(&self) -> Result<(), DecodeError> {
        is_of_an_instance(Stamp { instance: self.instance, seen: 0 })
    }
}

impl HotCopy<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        is_of_an_instance(self.stamp)?;
        check_stored(self.key, self.entry)
    }
}

impl HotValue<'_> {
    fn is_of_an_instance(&self) -> Result<(), DecodeError> {
        is_of_an_instance(self.stamp)
    }
}

impl HotConfirm {
    fn is_of_an_instance(&self) -> Result<(), DecodeError> {
        is_of_an_instance(self.stamp)
    }
}

impl HotClose {
    fn is_of_an_instance(&self) -> Result<(), DecodeError> {
        is_of_an_instance(self.stamp)
    }
}

impl HotClosed {
    fn is_of_an_instance(&self) -> Result<(), DecodeError> {
        is_of_an_instance(self.stamp)
    }
}

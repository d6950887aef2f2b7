//! Hot keys: what a switch writes into requests, and what holders and primaries say to it (KVSwitch §4.2 with rules H1, H2, H4 and H6).
//!
//! ```text
//!   client   header │ room = 2 │ 16 bytes of zeros │ body            a get, or an update
//!   switch                     │ instance, seen    │                 of the key's hot entry; zeros if it has none
//!
//!   holder  ──HotConfirm──▶ switch                  my copy is of this instance, and of this number
//!   primary ──HotClose────▶ switch ──HotClosed──▶ primary          from here on every stamp is of this number, or a later one
//! ```
//!
//! As with chain headers the client leaves the room and the last switch before the receiver fills it, whatever is there. What has come past every switch has a
//! stamp that nobody may believe: switches let no such thing through to a server's own address. All three messages go to the vnode of the key, as its gets
//! do, so that they meet the switch that all traffic of the key's owner crosses (H8), and end there.
//!
//! Between nodes there are the copies themselves, and the leases within which they may be shown (H5, H7):
//!
//! ```text
//!   metadata ──HotAssign──▶ primary        these nodes are to have copies, of this instance
//!   primary  ──HotCopy, HotDrop──▶ holder
//!   primary  ──HotPulse──▶ holder ──HotPulsed──▶ primary      what time is it there? until then copies of this serial may be shown
//! ```
//!
//! The switch itself may hold a copy, which is a reply that it has ready (H9). It is told of it as of closes, by the vnode of the key:
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

/// Nodes that have copies of a hot key, at most.
pub const HOT_HOLDERS_MAX: usize = 31;

layout_for_c! {
    /// A [`HotValue`], as it stands behind the header: then come the key and, to the end, the reply.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct HotValueLayout {
        /// Of the copy.
        pub instance: U64,
        /// Likewise.
        pub seen: U64,
        /// Which leases of the primary's it is shown under.
        pub serial: U64,
        /// Of the key, in bytes.
        pub key_length: U16,
        /// Zero.
        pub reserved: [u8; 6],
    }
}

layout_for_c! {
    /// A [`HotLease`] and its answer, as they stand behind the header.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct HotLeaseLayout {
        /// Names the switch's life.
        pub nonce: U64,
        /// On its boot-time clock.
        pub time_ns: U64,
        /// Of the leases.
        pub serial: U64,
    }
}

const _: () = assert!(size_of::<HotValueLayout>() == HotValue::FIXED_BYTES - Header::BYTES);
const _: () = assert!(size_of::<HotLeaseLayout>() == HotLease::FIXED_BYTES - Header::BYTES);

message! {
    /// What the sender's copy of a hot key is (H3): the switch may send it gets that have a stamp of that instance up to this number. Steers load, and
    /// nothing else depends on it (H6).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotConfirm: HotConfirm where is_of_an_instance {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Of the copy.
            stamp: Stamp,
        }
    }
}

message! {
    /// The primary asks what the switch counts, and to count one more, as if an update had passed, unless it counts further than this already (H4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotClose: HotClose where is_of_an_instance {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Of which instance, and of copies with labels up to which number; 0: it is only asked.
            stamp: Stamp,
        }
    }
}

message! {
    /// The answer: gets and updates that pass from here on have this number or a later one. The greatest number: no get will have that instance any more, as
    /// the switch has let go of it. A switch that does not know the instance, but may yet, is silent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotClosed: HotClosed where is_of_an_instance {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// The instance, and its number now.
            stamp: Stamp,
        }
    }
}

message! {
    /// Where copies of a hot key are to be. Steers load: what an owner makes of it is safe whatever it is told.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HotAssign: HotAssign where is_of_an_instance {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// The leader's term; a node refuses older ones.
            term: Term,
            /// Of the hot entry; a node takes no older one.
            instance: u64,
            /// Nodes that are to have copies; none: nobody any more.
            holders: Vec<SocketAddrV4> as List<u8, SocketAddrV4, HOT_HOLDERS_MAX>,
            /// Whether the switch is to have one, too (H9).
            in_switch: bool => 6 zeros,
        }
    }
}

message! {
    /// What the primary shows of a hot key (H3): right for gets that a switch has stamped with this instance and up to this number, within the lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotCopy<'a>: HotCopy where is_possible {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Of the copy.
            stamp: Stamp,
            /// Which leases of the primary's it is shown under.
            serial: u64,
            /// What is sent there meets the switch.
            vring: SocketAddrV4,
            /// The key.
            key: &'a [u8] as Key,
            /// In its stored form.
            entry: &'a [u8] as StoredEntry,
        }
    }
}
const _: () = assert!(HotCopy::FIXED_BYTES + Entry::FIXED_BYTES + PAIR_BYTES_MAX <= DATAGRAM_BYTES_MAX);

message! {
    /// Copies of keys with this digest are of no use any more, up to this instance. What is lost costs the holder memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotDrop: HotDrop {
        header {
            /// The keyspace of the keys.
            keyspace: KeyspaceId,
            /// Their digest.
            digest: KeyDigest,
        }
        body {
            /// The newest instance that is meant.
            instance: u64,
        }
    }
}

message! {
    /// The primary lets a holder show its copies for some time, and asks for the time there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotPulse: HotPulse {
        header {}
        body {
            /// Copies of this serial, and of no other.
            serial: u64,
            /// The process that is meant, as it names itself; 0: it is not known yet, and nothing is allowed.
            nonce: u64,
            /// What that process has said last of its boot-time clock.
            clock_ns: u64,
            /// For so long after that they may be shown; 0: not at all.
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
            /// Names the process.
            nonce: u64,
            /// What its boot-time clock says.
            clock_ns: u64,
            /// Whose leases of the primary's it goes by now: copies of others before are shown no more. 0: it has none.
            serial: u64,
        }
    }
}

message! {
    /// What the primary shows of a hot key, for the switch (H9): a reply to gets that pass while the switch counts just this number of that instance, within
    /// the lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotValue<'a>: HotValue where is_of_an_instance {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Of the copy.
            stamp: Stamp,
            /// Which leases of the primary's it is shown under.
            serial: u64,
            /// The key: switches keep no longer ones.
            key: &'a [u8] as Bytes<1, KERNEL_KEY_BYTES_MAX> => 6 zeros,
            /// The reply to a get, less its header.
            reply: &'a [u8] as Rest<REPLY_BODY_BYTES_MAX>,
        }
    }
}

/// The body of a reply to a get, at most.
pub const REPLY_BODY_BYTES_MAX: usize = Reply::FIXED_BYTES - Header::BYTES + VALUE_BYTES_MAX;
const _: () =
    assert!(HotValue::FIXED_BYTES + KERNEL_KEY_BYTES_MAX + REPLY_BODY_BYTES_MAX <= DATAGRAM_BYTES_MAX);

message! {
    /// The primary lets the switch show its copies until then, and asks for the time there, as by [`HotPulse`]. Of any key that it leads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotLease: HotLease {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// The switch's life that is meant, as it names itself; 0: it is not known yet, and nothing is allowed.
            nonce: u64,
            /// On the boot-time clock there.
            until_ns: u64,
            /// Copies of this serial, and of no other.
            serial: u64,
        }
    }
}

message! {
    /// The answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HotLeased: HotLeased {
        header {
            /// The keyspace of the key.
            keyspace: KeyspaceId,
            /// Digest of the key.
            digest: KeyDigest,
        }
        body {
            /// Names the switch's life: from its start until what it holds is lost.
            nonce: u64,
            /// What the boot-time clock says there.
            clock_ns: u64,
            /// As it was asked.
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

//! The stamp: what a switch writes into a get or update of a hot key (rule H2).

use crate::DecodeError;
use crate::bytes::{Reader, reserved};
use crate::c_layout::{c_type, layout_for_c};
use crate::codec::Codec;
#[cfg(test)]
use crate::samples::Random;
use core::mem::{offset_of, size_of};
use zerocopy::network_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

layout_for_c! {
    /// The stamp behind the header; zeros until a switch has filled it. Also the body of messages
    /// to a switch.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct StampLayout {
        /// Instance of the hot entry; 0: none.
        pub instance: U64,
        /// Updates of the key that have passed the switch.
        pub seen: U64,
    }
}

const _: () = assert!(size_of::<StampLayout>() == Stamp::BYTES);

/// State of a hot key in the switch when a request passed it (H2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Unique number of the installation of the hot entry (H1); 0: the key has no entry in the
    /// switch.
    pub instance: u64,
    /// Updates that have passed since, this one included; closes increase it, too.
    pub seen: u64,
}

impl Stamp {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;
    /// Stamp of a key without hot entry.
    pub const NONE: Self = Self { instance: 0, seen: 0 };

    /// Whether a switch with a hot entry of the key has written it.
    pub fn is_some(&self) -> bool {
        self.instance != 0
    }

    /// As encoded behind the header.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(Self::layout(self))
    }

    pub(crate) fn decode(layout: &StampLayout) -> Result<Self, DecodeError> {
        let stamp = Self { instance: layout.instance.get(), seen: layout.seen.get() };
        if !stamp.is_some() {
            reserved("seen", stamp.seen)?;
        }
        Ok(stamp)
    }
}

impl Codec for Stamp {
    type Value<'a> = Self;
    type Layout = StampLayout;

    fn layout(stamp: &Self) -> StampLayout {
        StampLayout { instance: stamp.instance.into(), seen: stamp.seen.into() }
    }

    fn read<'a>(_: &'static str, layout: &StampLayout, _: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::decode(layout)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Self {
        random.layout(Self::decode)
    }
}

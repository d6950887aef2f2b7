//! Codecs: how fields of messages are encoded.
//!
//! A message has a fixed part, in which every field has a fixed position, followed by the
//! variable-length parts (tails) of its fields, in the same order:
//!
//! ```text
//!   header │ field, field, length of key, field, length of value │ key, value
//! ```
//!
//! A [`Codec`] encodes both parts of a field. Messages are declared as lists of fields (`declare`),
//! so that no encoder or decoder is written by hand. A field's type is its own codec unless another
//! one is given.

#![allow(unreachable_pub, reason = "layouts of what is public name all of these")]

mod lists;
mod tails;

pub use lists::{Entries, InList, List, ListOf, ListedBytes, RestOf};
pub use tails::{
    After, Bytes, Key, LongValue, OptionalRest, OptionalResult, OptionalValue, Outcome, Rest, Trimmed, Value,
    Zeros,
};

use crate::bytes::{Reader, flag, put, reserved_bytes};
use crate::number::LongDouble;
#[cfg(test)]
use crate::samples::Random;
use crate::{ClientId, DecodeError, Epoch, KeyDigest, KeyspaceId, NodeId, OpId, Opcode, PartitionId, Term};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, SocketAddrV4};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Types without padding or invalid values, at any alignment.
pub trait Layout: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + 'static {}
impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy + 'static> Layout for T {}

/// Encoding and strict decoding of one kind of field.
pub trait Codec {
    /// Type of the field in the message's struct.
    type Value<'a>: 'a;
    /// Type of the field in the fixed part.
    type Layout: Layout;

    /// Encodes the fixed part.
    fn layout(value: &Self::Value<'_>) -> Self::Layout;

    /// Appends the tail.
    fn append_tail(_value: &Self::Value<'_>, _out: &mut Vec<u8>) {}

    /// Decodes the field; `tail` begins with its tail.
    fn read<'a>(
        field: &'static str,
        layout: &Self::Layout,
        tail: &mut Reader<'a>,
    ) -> Result<Self::Value<'a>, DecodeError>;

    /// A random value for tests.
    #[cfg(test)]
    fn sample(random: &mut Random) -> Self::Value<'static>;
}

/// Appends a value: fixed part, then tail.
pub(crate) fn append<C: Codec>(value: &C::Value<'_>, out: &mut Vec<u8>) {
    put(out, &C::layout(value));
    C::append_tail(value, out);
}

/// Reads what [`append`] wrote.
pub(crate) fn read<'a, C: Codec>(
    field: &'static str,
    reader: &mut Reader<'a>,
) -> Result<C::Value<'a>, DecodeError> {
    let layout = reader.layout_ref::<C::Layout>(field)?;
    C::read(field, layout, reader)
}

/// Iterates over the values of a verified [`RestOf`] field.
pub(crate) fn each<'a, C: Codec>(listed: &'a [u8]) -> impl Iterator<Item = C::Value<'a>> + use<'a, C> {
    let mut reader = Reader::new(listed);
    core::iter::from_fn(move || {
        let more = !reader.is_empty();
        more.then(|| read::<C>("listed", &mut reader).expect("checked by decode"))
    })
}

/// A field's fixed part, followed by zeros.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Spaced<T, const ZEROS: usize> {
    pub(crate) layout: T,
    zeros: [u8; ZEROS],
}

impl<T, const ZEROS: usize> Spaced<T, ZEROS> {
    pub(crate) fn new(layout: T) -> Self {
        Self { layout, zeros: [0; ZEROS] }
    }

    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        reserved_bytes("reserved", &self.zeros)
    }
}

/// An optional value without a tail; `None` is encoded as zeros.
pub struct Maybe<C>(PhantomData<C>);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MaybeLayout<T> {
    present: u8,
    layout: T,
}

impl<C: Codec> Codec for Maybe<C> {
    type Value<'a> = Option<C::Value<'a>>;
    type Layout = MaybeLayout<C::Layout>;

    fn layout(value: &Option<C::Value<'_>>) -> Self::Layout {
        let layout = value.as_ref().map_or_else(C::Layout::new_zeroed, C::layout);
        MaybeLayout { present: value.is_some().into(), layout }
    }

    fn read<'a>(
        field: &'static str,
        layout: &Self::Layout,
        tail: &mut Reader<'a>,
    ) -> Result<Self::Value<'a>, DecodeError> {
        if flag(field, layout.present)? {
            return C::read(field, &layout.layout, tail).map(Some);
        }
        reserved_bytes(field, layout.layout.as_bytes()).map(|()| None)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Self::Value<'static> {
        random.coin().then(|| C::sample(random))
    }
}

/// An enum: the tag, then the variant's fields, padded with zeros to the longest variant.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tagged<const BYTES: usize> {
    pub(crate) tag: u8,
    pub(crate) fields: [u8; BYTES],
}

impl<const BYTES: usize> Tagged<BYTES> {
    pub(crate) fn new(tag: u8) -> Self {
        Self { tag, fields: [0; BYTES] }
    }

    /// Writes a field at `at`; returns the end of the field.
    pub(crate) fn store(&mut self, at: usize, layout: impl Layout) -> usize {
        let end = at + layout.as_bytes().len();
        self.fields[at..end].copy_from_slice(layout.as_bytes());
        end
    }
}

/// Declares codecs of fields without a tail: type, fixed part, encoder, decoder (with the field's
/// name for errors).
macro_rules! plain {
    ($($type:ty, $layout:ty, |$value:ident| $to:expr, |$read:ident, $field:ident| $from:expr;)*) => { $(
        impl $crate::codec::Codec for $type {
            type Value<'a> = Self;
            type Layout = $layout;

            fn layout($value: &Self) -> $layout {
                $to
            }

            fn read<'a>(
                $field: &'static str,
                $read: &$layout,
                _: &mut $crate::bytes::Reader<'a>,
            ) -> Result<Self, $crate::DecodeError> {
                $from
            }

            #[cfg(test)]
            fn sample(random: &mut $crate::samples::Random) -> Self {
                random.layout::<$layout, Self>(|layout| Self::read("sample", layout, &mut $crate::bytes::Reader::new(&[])))
            }
        }
    )* };
}

pub(crate) use plain;

plain! {
    u8, u8, |value| *value, |layout, _field| Ok(*layout);
    u16, U16, |value| (*value).into(), |layout, _field| Ok(layout.get());
    u32, U32, |value| (*value).into(), |layout, _field| Ok(layout.get());
    u64, U64, |value| (*value).into(), |layout, _field| Ok(layout.get());
    i64, U64, |value| (*value as u64).into(), |layout, _field| Ok(layout.get() as i64);
    u128, [u8; 16], |value| value.to_be_bytes(), |layout, _field| Ok(u128::from_be_bytes(*layout));
    bool, u8, |value| (*value).into(), |layout, field| flag(field, *layout);
    Opcode, u8, |value| *value as u8, |layout, _field| Self::decode(*layout);
    LongDouble, [u8; LongDouble::BYTES], |value| value.to_bytes(), |layout, field| {
        let refused = DecodeError::UnknownValue { field, value: layout[0].into() };
        Self::from_bytes(layout).ok_or(refused)
    };
    NodeId, U16, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    KeyspaceId, U16, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    PartitionId, U32, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    Epoch, U32, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    Term, U64, |value| value.0.into(), |layout, _field| Ok(Self(layout.get()));
    KeyDigest, [u8; 16], |value| value.0, |layout, _field| Ok(Self(*layout));
    OpId, [U64; 2], |value| [value.client.0.into(), value.sequence.into()], |layout, _field| {
        Ok(Self { client: ClientId(layout[0].get()), sequence: layout[1].get() })
    };
    SocketAddrV4, AddressLayout, |value| AddressLayout::of(value), |layout, _field| {
        Ok(Self::new(Ipv4Addr::from(layout.ip), layout.port.get()))
    };
    (u64, u64), [U64; 2], |value| [value.0.into(), value.1.into()], |layout, _field| {
        Ok((layout[0].get(), layout[1].get()))
    };
}

/// An address and a port.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AddressLayout {
    ip: [u8; 4],
    port: U16,
}

impl AddressLayout {
    fn of(address: &SocketAddrV4) -> Self {
        Self { ip: address.ip().octets(), port: address.port().into() }
    }
}

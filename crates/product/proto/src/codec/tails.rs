//! Fields of variable length, which follow the fixed part.

use super::Codec;
use crate::DecodeError;
use crate::bytes::{Reader, flag, in_range, reserved, reserved_bytes};
use crate::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX};
#[cfg(test)]
use crate::samples::Random;
use alloc::vec::Vec;
use core::marker::PhantomData;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes whose length is in the fixed part.
pub struct Bytes<const MIN: usize, const MAX: usize>;
/// A key.
pub type Key = Bytes<0, KEY_BYTES_MAX>;
/// A value.
pub type Value = Bytes<0, VALUE_BYTES_MAX>;
/// A value that may be too long for a datagram.
pub type LongValue = Bytes<0, LONG_VALUE_BYTES_MAX>;

impl<const MIN: usize, const MAX: usize> Codec for Bytes<MIN, MAX> {
    type Value<'a> = &'a [u8];
    type Layout = U16;

    fn layout(value: &&[u8]) -> U16 {
        (value.len() as u16).into()
    }

    fn append_tail(value: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    fn read<'a>(field: &'static str, length: &U16, tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let length = in_range(field, length.get().into(), MIN, MAX)?;
        tail.bytes(length, field)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        random.bytes(MIN, MAX)
    }
}

/// The key after which a range begins; `None`: at the very first key, which may be the empty key.
pub struct After;

impl Codec for After {
    type Value<'a> = Option<&'a [u8]>;
    /// 0 for `None`, else the length of the key plus one.
    type Layout = U16;

    fn layout(after: &Option<&[u8]>) -> U16 {
        after.map_or(0, |key| key.len() as u16 + 1).into()
    }

    fn append_tail(after: &Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(after.unwrap_or_default());
    }

    fn read<'a>(
        field: &'static str,
        length: &U16,
        tail: &mut Reader<'a>,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(length) = usize::from(length.get()).checked_sub(1) else { return Ok(None) };
        tail.bytes(in_range(field, length, 0, KEY_BYTES_MAX)?, field).map(Some)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Option<&'static [u8]> {
        random.coin().then(|| Key::sample(random))
    }
}

/// Another field, without the zeros at the end of its fixed part; its length precedes it.
pub struct Trimmed<C>(PhantomData<C>);

impl<C: Codec> Codec for Trimmed<C> {
    type Value<'a> = C::Value<'a>;
    type Layout = u8;

    fn layout(value: &C::Value<'_>) -> u8 {
        const { assert!(size_of::<C::Layout>() <= u8::MAX as usize) };
        trimmed(C::layout(value).as_bytes()).len() as u8
    }

    fn append_tail(value: &C::Value<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(trimmed(C::layout(value).as_bytes()));
        C::append_tail(value, out);
    }

    fn read<'a>(
        field: &'static str,
        length: &u8,
        tail: &mut Reader<'a>,
    ) -> Result<Self::Value<'a>, DecodeError> {
        let length = in_range(field, usize::from(*length), 0, size_of::<C::Layout>())?;
        let bytes = tail.bytes(length, field)?;
        if bytes.last() == Some(&0) {
            return Err(DecodeError::UnknownValue { field, value: 0 });
        }
        let mut layout = C::Layout::new_zeroed();
        layout.as_mut_bytes()[..length].copy_from_slice(bytes);
        C::read(field, &layout, tail)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Self::Value<'static> {
        C::sample(random)
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

/// A value, or the results of a transaction.
pub type Outcome = Bytes<0, TRANSACTION_BYTES_MAX>;

/// Optional bytes; `None` differs from empty bytes.
pub struct OptionalBytes<const MAX: usize>;
/// A value, or none.
pub type OptionalValue = OptionalBytes<VALUE_BYTES_MAX>;
/// A value, or the results of a transaction, or `None`.
pub type OptionalResult = OptionalBytes<TRANSACTION_BYTES_MAX>;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionalLayout {
    present: u8,
    length: U16,
}

impl<const MAX: usize> Codec for OptionalBytes<MAX> {
    type Value<'a> = Option<&'a [u8]>;
    type Layout = OptionalLayout;

    fn layout(value: &Option<&[u8]>) -> OptionalLayout {
        OptionalLayout {
            present: value.is_some().into(),
            length: Bytes::<0, MAX>::layout(&value.unwrap_or_default()),
        }
    }

    fn append_tail(value: &Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(value.unwrap_or_default());
    }

    fn read<'a>(
        field: &'static str,
        layout: &OptionalLayout,
        tail: &mut Reader<'a>,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        if !flag(field, layout.present)? {
            reserved(field, layout.length.get().into())?;
            return Ok(None);
        }
        Bytes::<0, MAX>::read(field, &layout.length, tail).map(Some)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Option<&'static [u8]> {
        random.coin().then(|| Bytes::<0, MAX>::sample(random))
    }
}

/// All bytes up to the end of the message; only as its last field.
pub struct Rest<const MAX: usize>;

impl<const MAX: usize> Codec for Rest<MAX> {
    type Value<'a> = &'a [u8];
    type Layout = [u8; 0];

    fn layout(_: &&[u8]) -> [u8; 0] {
        []
    }

    fn append_tail(value: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    fn read<'a>(field: &'static str, _: &[u8; 0], tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let bytes = tail.rest();
        in_range(field, bytes.len(), 0, MAX)?;
        Ok(bytes)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        random.bytes(0, MAX)
    }
}

/// Optional bytes up to the end of the message.
pub struct OptionalRest<const MAX: usize>;

impl<const MAX: usize> Codec for OptionalRest<MAX> {
    type Value<'a> = Option<&'a [u8]>;
    type Layout = u8;

    fn layout(value: &Option<&[u8]>) -> u8 {
        value.is_some().into()
    }

    fn append_tail(value: &Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(value.unwrap_or_default());
    }

    fn read<'a>(
        field: &'static str,
        present: &u8,
        tail: &mut Reader<'a>,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let bytes = tail.rest();
        if !flag(field, *present)? {
            reserved(field, bytes.len() as u64)?;
            return Ok(None);
        }
        in_range(field, bytes.len(), 0, MAX)?;
        Ok(Some(bytes))
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Option<&'static [u8]> {
        random.coin().then(|| Bytes::<0, MAX>::sample(random))
    }
}

/// Zeros up to the end of the message.
pub struct Zeros;

impl Codec for Zeros {
    type Value<'a> = usize;
    type Layout = [u8; 0];

    fn layout(_: &usize) -> [u8; 0] {
        []
    }

    fn append_tail(count: &usize, out: &mut Vec<u8>) {
        out.resize(out.len() + count, 0);
    }

    fn read<'a>(field: &'static str, _: &[u8; 0], tail: &mut Reader<'a>) -> Result<usize, DecodeError> {
        let zeros = tail.rest();
        reserved_bytes(field, zeros).map(|()| zeros.len())
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> usize {
        random.bytes(0, VALUE_BYTES_MAX).len()
    }
}

//! A bounds-checked cursor over received bytes, and helpers for fixed layouts.

use crate::DecodeError;
use alloc::vec::Vec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Reads fixed layouts and counted bytes from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `T`, copied out (layouts here are a few dozen bytes).
    pub fn layout<T: FromBytes + KnownLayout + Immutable + Copy>(
        &mut self,
        field: &'static str,
    ) -> Result<T, DecodeError> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| DecodeError::TooShort { field })?;
        self.rest = rest;
        Ok(value)
    }

    /// The next `T`, in place.
    pub(crate) fn layout_ref<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        field: &'static str,
    ) -> Result<&'a T, DecodeError> {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| DecodeError::TooShort { field })?;
        self.rest = rest;
        Ok(value)
    }

    /// The bytes between this position and that of `later`.
    pub(crate) fn until(&self, later: &Self) -> &'a [u8] {
        &self.rest[..self.rest.len() - later.rest.len()]
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::LengthMismatch { field, stated: length, actual: self.rest.len() });
        }
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses trailing bytes.
    pub fn finish(self, field: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            actual => Err(DecodeError::LengthMismatch { field, stated: 0, actual }),
        }
    }
}

/// Appends a fixed layout.
pub fn put<T: IntoBytes + Immutable>(out: &mut Vec<u8>, layout: &T) {
    out.extend_from_slice(layout.as_bytes());
}

/// Checks that `value` lies in `minimum..=maximum`.
pub(crate) fn in_range(
    field: &'static str,
    value: usize,
    minimum: usize,
    maximum: usize,
) -> Result<usize, DecodeError> {
    if (minimum..=maximum).contains(&value) {
        Ok(value)
    } else {
        Err(DecodeError::OutOfRange { field, value, minimum, maximum })
    }
}

/// Decodes a flag that may be 0 or 1 only.
pub(crate) fn flag(field: &'static str, value: u8) -> Result<bool, DecodeError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::UnknownValue { field, value: value.into() }),
    }
}

/// Refuses a reserved field that is not zero, so that it can be given a meaning later.
pub(crate) fn reserved(field: &'static str, value: u64) -> Result<(), DecodeError> {
    if value == 0 { Ok(()) } else { Err(DecodeError::UnknownValue { field, value }) }
}

/// [`reserved`] for a field of several bytes.
pub(crate) fn reserved_bytes(field: &'static str, bytes: &[u8]) -> Result<(), DecodeError> {
    // Without a branch for each: a scan may have a datagram of them.
    match bytes.iter().fold(0, |any, byte| any | byte) {
        0 => Ok(()),
        _ => bytes.iter().try_for_each(|byte| reserved(field, (*byte).into())),
    }
}

//! Reading and writing big-endian structures.

use alloc::vec::Vec;

use super::DecodeError;

/// A cursor over one structure. Errors name the structure.
pub(super) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(DecodeError::Truncated(self.what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N).map(|bytes| *bytes.first_chunk().expect("N bytes were taken"))
    }

    pub(super) fn skip(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.take(bytes).map(|_| ())
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Skips padding to a multiple of eight bytes since `before` bytes remained.
    pub(super) fn skip_padding_since(&mut self, before: usize) -> Result<(), DecodeError> {
        let bytes = before - self.remaining();
        self.skip(bytes.next_multiple_of(8) - bytes)
    }

    /// Everything up to the end of the structure.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// A part whose length is known: its own structure, named `what`.
    pub(super) fn part(&mut self, what: &'static str, bytes: usize) -> Result<Reader<'a>, DecodeError> {
        self.take(bytes).map(|part| Reader::new(what, part))
    }

    /// A part that begins with a type and its own length in bytes (both 16 bits, the length covers
    /// them). The part that is returned begins after the two.
    pub(super) fn typed_part(&mut self, what: &'static str) -> Result<(u16, Reader<'a>), DecodeError> {
        let (kind, bytes) = (self.u16()?, self.u16()?);
        let bytes = usize::from(bytes).checked_sub(4).ok_or(DecodeError::Length(what))?;
        Ok((kind, self.part(what, bytes)?))
    }

    /// A part that begins with its own length in bytes (16 bits, which the length covers).
    pub(super) fn sized_part(&mut self, what: &'static str) -> Result<Reader<'a>, DecodeError> {
        let bytes = usize::from(self.u16()?).checked_sub(2).ok_or(DecodeError::Length(what))?;
        self.part(what, bytes)
    }

    /// Parts until the end of the structure, which read themselves.
    pub(super) fn all<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut all = Vec::new();
        while !self.is_empty() {
            all.push(read(self)?);
        }
        Ok(all)
    }

    /// Requires that nothing is left.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::Length(self.what)) }
    }
}

/// Appends big-endian fields.
pub(super) trait Write {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn bytes(&mut self, bytes: &[u8]);
    fn zeros(&mut self, bytes: usize);
    /// Zeros until the length since `start` is a multiple of eight.
    fn pad_since(&mut self, start: usize);
    /// Writes the length since `start` into the 16-bit field at `at`.
    fn set_length(&mut self, at: usize, start: usize);
}

impl Write for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn zeros(&mut self, bytes: usize) {
        self.resize(self.len() + bytes, 0);
    }

    fn pad_since(&mut self, start: usize) {
        let bytes = self.len() - start;
        self.zeros(bytes.next_multiple_of(8) - bytes);
    }

    /// A length that does not fit is written as the largest one; [`super::encode`] refuses such a
    /// message as a whole.
    fn set_length(&mut self, at: usize, start: usize) {
        let length = u16::try_from(self.len() - start).unwrap_or(u16::MAX);
        self[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// The value with this number, if `all` lists the values in the order of their numbers, from 0.
pub(super) fn known<T: Copy>(what: &'static str, number: u32, all: &[T]) -> Result<T, DecodeError> {
    all.get(number as usize).copied().ok_or(DecodeError::Unknown { what, value: number.into() })
}

//! Hash values: fields with values under one key.
//!
//! ```text
//!   a hash, and the fields to set   [ name, value ][ name, value ] …   in the order in which the names were first set, each once
//!   the fields to remove            [ name ][ name ] …
//! ```
//!
//! A hash has at least one field: removing the last one deletes the key. Its bytes are stored like
//! those of a plain value, with [`Form::Hash`](crate::Form::Hash).

use crate::DecodeError;
use crate::bytes::{Reader, in_range};
use crate::codec::{self, Bytes, Codec, ListedBytes};
use crate::declare::{codec_of, layout, part};
use crate::limits::HASH_BYTES_MAX;
use crate::number::LongDouble;
#[cfg(test)]
use crate::samples::Random;
use alloc::vec::Vec;
use zerocopy::network_endian::U16;

part! {
    /// A field with its value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Field<'a> {
        /// Name; may be empty.
        name: &'a [u8] as Bytes<0, HASH_BYTES_MAX>,
        /// Value; may be empty.
        value: &'a [u8] as Bytes<0, HASH_BYTES_MAX>,
    }
}

part! {
    /// The name of a field.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Name<'a> {
        /// The name.
        name: &'a [u8] as Bytes<0, HASH_BYTES_MAX>,
    }
}

/// Encoded [`Field`]s, at least one.
pub type Fields = ListedBytes<Field<'static>, HASH_BYTES_MAX>;
/// Encoded [`Name`]s, at least one.
pub type Names = ListedBytes<Name<'static>, HASH_BYTES_MAX>;

impl<'a> Field<'a> {
    /// Appends it to encoded fields.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Field<'static>>(self, out);
    }

    /// Iterates over the fields of a decoded hash or operation.
    pub fn each(fields: &'a [u8]) -> impl Iterator<Item = Self> + use<'a> {
        codec::each::<Field<'static>>(fields)
    }

    /// Value of the field with this name.
    pub fn value_of(hash: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        Self::each(hash).find(|field| field.name == name).map(|field| field.value)
    }

    /// Length of the encoded form, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<<Field<'static> as Codec>::Layout>() + self.name.len() + self.value.len()
    }

    /// A field whose value is the number to be added
    /// ([`Operation::IncrementFieldFloat`](crate::Operation::IncrementFieldFloat)).
    pub fn with_delta(name: &[u8], delta: LongDouble) -> Vec<u8> {
        let mut out = Vec::new();
        Field { name, value: &delta.to_bytes() }.append(&mut out);
        out
    }

    /// Name and number of a field made by [`Self::with_delta`].
    pub fn delta(encoded: &'a [u8]) -> Option<(&'a [u8], LongDouble)> {
        let mut fields = Reader::new(encoded);
        let Self { name, value } = codec::read::<Field<'static>>("field", &mut fields).ok()?;
        let delta = LongDouble::from_bytes(value)?;
        fields.is_empty().then_some((name, delta))
    }
}

impl<'a> Name<'a> {
    /// Appends it to encoded names.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Name<'static>>(self, out);
    }

    /// Iterates over the names of a decoded operation.
    pub fn each(names: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        codec::each::<Name<'static>>(names).map(|name| name.name)
    }
}

/// Checks that the bytes are a hash.
pub(crate) fn check(hash: &[u8]) -> Result<(), DecodeError> {
    let length = U16::new(in_range("hash", hash.len(), 1, HASH_BYTES_MAX)? as u16);
    Fields::read("hash", &length, &mut Reader::new(hash)).map(|_| ())
}

/// A field made by [`Field::with_delta`].
pub struct FieldDelta;

impl Codec for FieldDelta {
    type Value<'a> = &'a [u8];
    type Layout = U16;

    fn layout(field: &&[u8]) -> U16 {
        Fields::layout(field)
    }

    fn append_tail(field: &&[u8], out: &mut Vec<u8>) {
        Fields::append_tail(field, out);
    }

    fn read<'a>(name: &'static str, length: &U16, tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let field = Fields::read(name, length, tail)?;
        let refused = DecodeError::UnknownValue { field: name, value: field.len() as u64 };
        Field::delta(field).map(|_| field).ok_or(refused)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        Field::with_delta(random.bytes(0, HASH_BYTES_MAX - 64), LongDouble::sample(random)).leak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;

    #[test]
    fn field_and_name_codecs_are_strict() {
        check_part::<Field<'static>>();
        check_part::<Fields>();
        check_part::<Names>();
        check_part::<FieldDelta>();
    }

    #[test]
    fn hash_contains_only_well_formed_fields() {
        let mut hash = Vec::new();
        let fields = [Field { name: b"one", value: b"1" }, Field { name: b"", value: b"" }];
        fields.iter().for_each(|field| field.append(&mut hash));
        assert_eq!(hash.len(), fields.iter().map(Field::bytes).sum::<usize>());
        assert!(check(&hash).is_ok() && Field::each(&hash).eq(fields));
        assert_eq!(
            (Field::value_of(&hash, b"one"), Field::value_of(&hash, b"")),
            (Some(&b"1"[..]), Some(&b""[..]))
        );
        assert_eq!(Field::value_of(&hash, b"two"), None);
        for length in [0, 1, hash.len() - 1] {
            assert!(check(&hash[..length]).is_err(), "{length}");
        }
        assert!(check(&[&hash[..], b"\0"].concat()).is_err());
        let mut long = Vec::new();
        Field { name: b"", value: &[7; HASH_BYTES_MAX] }.append(&mut long);
        assert!(check(&long).is_err(), "beyond the limit");
    }

    #[test]
    fn field_delta_is_a_number() {
        let delta = LongDouble::from_parts(false, 0x3fff, 3 << 62).unwrap();
        let encoded = Field::with_delta(b"f", delta);
        assert_eq!(Field::delta(&encoded), Some((&b"f"[..], delta)));
        assert_eq!(Field::delta(&[&encoded[..], &encoded].concat()), None);
        assert_eq!(Field::delta(&encoded[1..]), None);
    }
}

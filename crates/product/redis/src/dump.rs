//! Payloads of DUMP and RESTORE: values in the format of Redis' snapshots.
//!
//! ```text
//!   [ type ][ the value                                  ][ version, 2 bytes ][ CRC-64 of all before, 8 bytes ]
//!     0       a string: its length and bytes, or a number
//!     16      a hash of few short fields: a string that is a listpack (`listpack`)
//!     4       any other hash: how many fields, name and value of each as strings
//! ```
//!
//! Redis 7.0 can read these payloads. They equal the ones that it writes, except that nothing is
//! compressed here. Compressed payloads can be read.

mod checksum;
mod listpack;
mod lzf;

use crate::encoding::is_listpack;
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;
use nicekv_proto::Form;
use nicekv_proto::hash::Field;
use nicekv_proto::number::parse_integer;

const STRING: u8 = 0;
const HASH: u8 = 4;
const HASH_LISTPACK: u8 = 16;
/// Format version of Redis 7.0.
const VERSION: u16 = 10;
/// Format version of Redis 7.4, which is the same for these types.
const VERSION_MAX: u16 = 12;
const FOOTER_BYTES: usize = size_of::<u16>() + size_of::<u64>();
/// Maximum bytes of a value in a payload.
pub(crate) const DUMPED_BYTES_MAX: usize = 1 << 20;
/// Longer strings are never stored as numbers.
const NUMBER_BYTES_MAX: usize = 11;

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The version is unknown, or the checksum is wrong.
    Footer,
    /// The encoding is invalid, or the type is not supported.
    Form,
    /// The value is longer than [`DUMPED_BYTES_MAX`].
    TooLong,
}

/// Encodes a value.
pub(crate) fn payload(value: &[u8], form: Form) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 32);
    match form {
        Form::Hash if is_listpack(value) => {
            out.push(HASH_LISTPACK);
            let items = Field::each(value).flat_map(|field| [field.name, field.value]);
            append_bytes(&listpack::of(items), &mut out);
        }
        Form::Hash => {
            out.push(HASH);
            append_length(Field::each(value).count(), &mut out);
            for field in Field::each(value) {
                append_string(field.name, &mut out);
                append_string(field.value, &mut out);
            }
        }
        _ => {
            out.push(STRING);
            append_string(value, &mut out);
        }
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = checksum::of(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Decodes a payload.
pub(crate) fn value(payload: &[u8]) -> Result<(Cow<'_, [u8]>, Form), Damage> {
    let (body, footer) =
        payload.split_at_checked(payload.len().wrapping_sub(FOOTER_BYTES)).ok_or(Damage::Footer)?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let summed = &payload[..payload.len() - size_of::<u64>()];
    if version > VERSION_MAX || checksum::of(summed).to_le_bytes() != footer[size_of::<u16>()..] {
        return Err(Damage::Footer);
    }
    let mut reader = Reader(body);
    match reader.byte()? {
        STRING => Ok((reader.string()?, Form::Plain)),
        HASH => {
            let count = reader.count()?;
            let mut items = Vec::new();
            for _ in 0..count.checked_mul(2).ok_or(Damage::Form)? {
                items.push(reader.string()?);
            }
            Ok((Cow::Owned(hash(&items)?), Form::Hash))
        }
        HASH_LISTPACK => {
            let packed = reader.string()?;
            let items = listpack::items(&packed).ok_or(Damage::Form)?;
            Ok((Cow::Owned(hash(&items)?), Form::Hash))
        }
        _ => Err(Damage::Form),
    }
}

/// Encodes alternating names and values in the format in which the store keeps hashes.
fn hash(items: &[Cow<'_, [u8]>]) -> Result<Vec<u8>, Damage> {
    let mut names = BTreeSet::new();
    let (mut fields, pairs) = (Vec::new(), items.chunks_exact(2));
    if items.is_empty() || !pairs.remainder().is_empty() {
        return Err(Damage::Form);
    }
    for pair in pairs {
        let field = Field { name: &pair[0], value: &pair[1] };
        if !names.insert(field.name) {
            return Err(Damage::Form);
        }
        if fields.len() + field.bytes() > DUMPED_BYTES_MAX || field.bytes() > usize::from(u16::MAX) {
            return Err(Damage::TooLong);
        }
        field.append(&mut fields);
    }
    Ok(fields)
}

fn append_length(length: usize, out: &mut Vec<u8>) {
    match length {
        0..64 => out.push(length as u8),
        64..16_384 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

/// Appends a string; if it is a short integer, as a number.
fn append_string(bytes: &[u8], out: &mut Vec<u8>) {
    let number = Some(bytes).filter(|bytes| bytes.len() <= NUMBER_BYTES_MAX).and_then(parse_integer);
    match number.and_then(|number| i32::try_from(number).ok()) {
        Some(number) => append_number(number, out),
        None => append_bytes(bytes, out),
    }
}

fn append_number(number: i32, out: &mut Vec<u8>) {
    if let Ok(short) = i8::try_from(number) {
        out.extend_from_slice(&[0xc0, short as u8]);
    } else if let Ok(short) = i16::try_from(number) {
        out.push(0xc1);
        out.extend_from_slice(&short.to_le_bytes());
    } else {
        out.push(0xc2);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    append_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Reads a payload; holds the part that is left.
struct Reader<'a>(&'a [u8]);

/// A length, or the kind of a specially encoded string.
enum Length {
    Of(usize),
    Other(u8),
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Damage::Form)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        self.bytes(N)?.try_into().map_err(|_| Damage::Form)
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        self.array().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<Length, Damage> {
        let first = self.byte()?;
        let length = match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            2 if first == 0x80 => u32::from_be_bytes(self.array()?).into(),
            2 if first == 0x81 => u64::from_be_bytes(self.array()?),
            3 => return Ok(Length::Other(first & 0x3f)),
            _ => return Err(Damage::Form),
        };
        Ok(Length::Of(usize::try_from(length).map_err(|_| Damage::Form)?))
    }

    fn count(&mut self) -> Result<usize, Damage> {
        match self.length()? {
            Length::Of(length) => Ok(length),
            Length::Other(_) => Err(Damage::Form),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, [u8]>, Damage> {
        let number = |number: i32| Ok(Cow::Owned(number.to_string().into_bytes()));
        match self.length()? {
            Length::Of(length) if length > DUMPED_BYTES_MAX && length <= self.0.len() => Err(Damage::TooLong),
            Length::Of(length) => self.bytes(length).map(Cow::Borrowed),
            Length::Other(0) => number(i8::from_le_bytes(self.array()?).into()),
            Length::Other(1) => number(i16::from_le_bytes(self.array()?).into()),
            Length::Other(2) => number(i32::from_le_bytes(self.array()?)),
            Length::Other(3) => {
                let (packed, length) = (self.count()?, self.count()?);
                if length > DUMPED_BYTES_MAX {
                    return Err(Damage::TooLong);
                }
                lzf::unpacked(self.bytes(packed)?, length).map(Cow::Owned).ok_or(Damage::Form)
            }
            Length::Other(_) => Err(Damage::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn fields(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        pairs.iter().for_each(|&(name, value)| Field { name, value }.append(&mut out));
        out
    }

    #[test]
    fn values_survive_a_round_trip_and_damage_is_found() {
        let long = vec![b'v'; 70];
        let many: Vec<_> = (0..600).map(|number: u32| number.to_string().into_bytes()).collect();
        let many: Vec<(&[u8], &[u8])> = many.iter().map(|name| (name.as_slice(), &b"x"[..])).collect();
        let hashes = [
            fields(&[(b"", b""), (b"a", b"-5000"), (b"b", b"9223372036854775807"), (b"c", b"4095")]),
            fields(&[(b"a", &long)]),
            fields(&many),
        ];
        let strings: [&[u8]; 9] =
            [b"", b"0", b"-129", b"40000", b"4000000000", b"007", b"v", &[7; 100], &[9; 20_000]];
        let plain = strings.iter().map(|value| (value.to_vec(), Form::Plain));
        for (expected, form) in plain.chain(hashes.map(|hash| (hash, Form::Hash))) {
            let dumped = payload(&expected, form);
            let (found, of) = value(&dumped).unwrap();
            assert!(*found == *expected && of == form, "{}", expected.escape_ascii());
            for place in 0..dumped.len() {
                let mut damaged = dumped.clone();
                damaged[place] ^= 4;
                assert_eq!(value(&damaged), Err(Damage::Footer));
            }
        }
    }

    #[test]
    fn invalid_payloads_are_refused() {
        let of = |body: &[u8]| {
            let mut payload = [body, &VERSION.to_le_bytes()].concat();
            payload.extend(checksum::of(&payload).to_le_bytes());
            payload
        };
        for body in [
            &b""[..],
            b"\x01\x00",
            b"\x00",
            b"\x00\x05abc",
            b"\x00\x82",
            b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x00\xc3\x02\x05\x20\x00",
            b"\x04\x00",
            b"\x04\x02\x01a\x01b\x01a\x01c",
            b"\x04\x01\x01a",
            b"\x04\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x10\x03abc",
            b"\x10\x07\x07\x00\x00\x00\x00\x00\xff",
        ] {
            assert_eq!(value(&of(body)), Err(Damage::Form), "{}", body.escape_ascii());
        }
        assert_eq!(value(&of(b"\x00\xc3\x01\x80\x7f\xff\xff\xff\x00")), Err(Damage::TooLong));
        assert_eq!(value(b"short"), Err(Damage::Footer));
        assert_eq!(*value(&of(b"\x00\xc3\x04\x09\x00a\xc0\x00")).unwrap().0, *b"aaaaaaaaa");
    }
}

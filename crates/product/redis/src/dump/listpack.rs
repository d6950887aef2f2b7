//! Listpacks: short strings and numbers in sequence.
//!
//! ```text
//!   [ bytes of all, 4 ][ how many, 2 ] [ kind, item, length of both ] [ … ] 0xff
//! ```

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_proto::number::parse_integer;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// The count in the header if there are more items than it can express.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// Encodes items.
pub(super) fn of<'a>(items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut out, mut count) = (vec![0; HEADER_BYTES], 0_u32);
    for item in items {
        let before = out.len();
        match parse_integer(item) {
            Some(number) => append_number(number, &mut out),
            None => append_bytes(item, &mut out),
        }
        append_back(out.len() - before, &mut out);
        count += 1;
    }
    out.push(END);
    let bytes = (out.len() as u32).to_le_bytes();
    out[..4].copy_from_slice(&bytes);
    let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
    out[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    out
}

fn append_number(number: i64, out: &mut Vec<u8>) {
    let mut wide = |kind: u8, bytes: usize| {
        out.push(kind);
        out.extend_from_slice(&number.to_le_bytes()[..bytes]);
    };
    match number {
        0..128 => out.push(number as u8),
        -4_096..4_096 => out.extend_from_slice(&(number as u16 & 0x1fff | 0xc000).to_be_bytes()),
        -32_768..32_768 => wide(0xf1, 2),
        -8_388_608..8_388_608 => wide(0xf2, 3),
        -2_147_483_648..2_147_483_648 => wide(0xf3, 4),
        _ => wide(0xf4, 8),
    }
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        length @ 0..64 => out.push(length as u8 | 0x80),
        length @ 64..4_096 => out.extend_from_slice(&(length as u16 | 0xe000).to_be_bytes()),
        length => {
            out.push(0xf0);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// Appends the length of an item in a form that can be read backwards: seven bits per byte, the
/// highest first, and the top bit set in all bytes except the first.
fn append_back(length: usize, out: &mut Vec<u8>) {
    let bytes = back_bytes(length);
    for place in (0..bytes).rev() {
        let mark = if place + 1 == bytes { 0 } else { 128 };
        out.push((length >> (7 * place) & 127) as u8 | mark);
    }
}

fn back_bytes(length: usize) -> usize {
    match length {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

/// Decodes a listpack; `None` if it is invalid.
pub(super) fn items(packed: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    let bytes = u32::from_le_bytes(packed.get(..4)?.try_into().ok()?);
    let count = u16::from_le_bytes(packed.get(4..HEADER_BYTES)?.try_into().ok()?);
    if usize::try_from(bytes).ok()? != packed.len() {
        return None;
    }
    let (mut items, mut rest) = (Vec::new(), &packed[HEADER_BYTES..]);
    while rest.first()? != &END {
        let (item, length) = first(rest)?;
        let mut back = Vec::new();
        append_back(length, &mut back);
        rest = rest.get(length..)?.strip_prefix(back.as_slice())?;
        items.push(item);
    }
    let is_whole = rest.len() == 1 && (count == COUNT_UNKNOWN || usize::from(count) == items.len());
    is_whole.then_some(items)
}

/// Decodes the first item; also returns the bytes that it takes.
fn first(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, usize)> {
    let byte = |place: usize| bytes.get(place).copied();
    let text = |number: i64, taken| Some((Cow::Owned(number.to_string().into_bytes()), taken));
    let string = |head: usize, length: usize| {
        let end = head.checked_add(length)?;
        Some((Cow::Borrowed(bytes.get(head..end)?), end))
    };
    let wide = |count: usize| {
        let mut number = [0; 8];
        number[8 - count..].copy_from_slice(bytes.get(1..=count)?);
        text(i64::from_le_bytes(number) >> (64 - 8 * count), 1 + count)
    };
    match byte(0)? {
        number @ 0..0x80 => text(number.into(), 1),
        kind @ 0x80..0xc0 => string(1, usize::from(kind & 0x3f)),
        kind @ 0xc0..0xe0 => {
            let number = i64::from(kind & 0x1f) << 8 | i64::from(byte(1)?);
            text(number << 51 >> 51, 2)
        }
        kind @ 0xe0..0xf0 => string(2, usize::from(kind & 0x0f) << 8 | usize::from(byte(1)?)),
        0xf0 => string(5, u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?) as usize),
        0xf1 => wide(2),
        0xf2 => wide(3),
        0xf3 => wide(4),
        0xf4 => wide(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_survive_a_round_trip_with_the_sizes_of_redis() {
        let (short, long, longer) = (vec![b'a'; 63], vec![b'b'; 64], vec![b'c'; 5_000]);
        for (item, bytes) in [
            (&b""[..], 1),
            (b"0", 1),
            (b"127", 1),
            (b"128", 2),
            (b"-1", 2),
            (b"-4096", 2),
            (b"4095", 2),
            (b"4096", 3),
            (b"-32769", 4),
            (b"8388608", 5),
            (b"-2147483649", 9),
            (b"00", 3),
            (&short, 64),
            (&long, 66),
            (&longer, 5_005),
        ] {
            let packed = of([item].into_iter());
            assert_eq!(packed.len(), HEADER_BYTES + bytes + back_bytes(bytes) + 1, "{}", item.escape_ascii());
            assert_eq!(items(&packed).unwrap(), [item]);
            for end in 0..packed.len() {
                assert_eq!(items(&packed[..end]), None);
            }
        }
    }
}

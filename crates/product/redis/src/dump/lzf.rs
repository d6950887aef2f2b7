//! Decompression of LZF.
//!
//! ```text
//!   000nnnnn                    copy n + 1 bytes that follow
//!   nnnooooo oooooooo           repeat n + 2 bytes from o + 1 bytes back
//!   111ooooo nnnnnnnn oooooooo  repeat n + 9 bytes likewise
//! ```

use alloc::vec::Vec;

/// Decompresses to exactly `length` bytes; `None` if the input is invalid.
pub(super) fn unpacked(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length);
    let mut bytes = packed.iter().copied();
    while let Some(control) = bytes.next() {
        let count = usize::from(control >> 5);
        if count == 0 {
            for _ in 0..=control {
                out.push(bytes.next()?);
            }
        } else {
            let more = if count == 7 { usize::from(bytes.next()?) } else { 0 };
            let back = (usize::from(control & 31) << 8 | usize::from(bytes.next()?)) + 1;
            let from = out.len().checked_sub(back)?;
            // The source may overlap with the bytes that this loop appends.
            for place in from..from + count + more + 2 {
                out.push(out[place]);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::unpacked;

    #[test]
    fn compressed_bytes_are_restored_and_invalid_input_refused() {
        assert_eq!(unpacked(b"\x01ab\x20\x01", 5).unwrap(), b"ababa");
        assert_eq!(unpacked(b"\x00a\xe0\x01\x00", 11).unwrap(), b"aaaaaaaaaaa");
        for (packed, length) in
            [(&b"\x20\x00"[..], 3), (b"\x01a", 2), (b"\x00a", 2), (b"\x01ab", 1), (b"\xe0", 9)]
        {
            assert_eq!(unpacked(packed, length), None);
        }
    }
}

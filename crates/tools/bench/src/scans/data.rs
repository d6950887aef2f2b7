//! The keys and values that are scanned, the same on both sides.
//!
//! A key is a byte that spreads keys evenly over the records, then its number. A value begins with
//! its key. No key contains a newline or a zero, as `redis-cli` prints keys as lines of C strings.

pub(super) const KEY_BYTES: usize = 16;
pub(super) const VALUE_BYTES: usize = 100;
const DIGITS: usize = KEY_BYTES - 1;

/// The key with this number, of `of` keys. Keys are ordered by their numbers.
pub(super) fn key(number: u32, of: u32) -> [u8; KEY_BYTES] {
    let place = (u64::from(number) * 256 / u64::from(of.max(1))) as u8;
    let mut key = [b'0'; KEY_BYTES];
    // The next byte is in the same record, if there are at most 64 records.
    key[0] = if matches!(place, 0 | b'\n') { place + 1 } else { place };
    let mut rest = number;
    for digit in key[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The value of the key with this number.
pub(super) fn value(number: u32, of: u32) -> [u8; VALUE_BYTES] {
    let mut value = [b'.'; VALUE_BYTES];
    value[..KEY_BYTES].copy_from_slice(&key(number, of));
    value
}

/// The keys that a scan has returned.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    of: u32,
    /// Distinct keys returned, and how many with repetitions.
    count: u32,
    returned: u32,
    bits: Vec<u64>,
}

impl Seen {
    pub(super) fn none_of(of: u32) -> Self {
        Self { of, count: 0, returned: 0, bits: vec![0; of.div_ceil(64) as usize] }
    }

    /// Starts again with none.
    pub(super) fn clear(&mut self) {
        (self.count, self.returned) = (0, 0);
        self.bits.fill(0);
    }

    /// Records a key and its value; false if there is no such key, or it has another value.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> bool {
        let Some(number) = number_of(key).filter(|number| *number < self.of) else { return false };
        let is_right = value.len() == VALUE_BYTES && value.starts_with(key);
        let (word, bit) = (&mut self.bits[(number / 64) as usize], 1 << (number % 64));
        self.count += u32::from(*word & bit == 0);
        self.returned += 1;
        *word |= bit;
        is_right
    }

    /// Whether every key was returned.
    pub(super) fn is_all(&self) -> bool {
        self.count == self.of
    }

    /// Whether some key was returned more than once.
    pub(super) fn is_repeated(&self) -> bool {
        self.returned > self.count
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

fn number_of(key: &[u8]) -> Option<u32> {
    let digits: &[u8; DIGITS] = key.get(1..)?.try_into().ok()?;
    digits.iter().try_fold(0u32, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_spread_evenly_over_records() {
        for (of, records) in [(8, 8), (64, 8), (100_000, 8), (100_000, 64)] {
            assert!((1..of).all(|number| key(number - 1, of) < key(number, of)));
            let record = |number| usize::from(key(number, of)[0]) * records / 256;
            let mut counts = vec![0; records];
            (0..of).for_each(|number| counts[record(number)] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 4, "{of} in {records}: {least} to {most}");
            assert!((0..of).all(|number| !key(number, of).iter().any(|byte| matches!(byte, 0 | b'\n'))));
        }
    }

    #[test]
    fn every_key_counts_once_and_needs_its_own_value() {
        let mut seen = Seen::none_of(100);
        for number in 0..100 {
            assert!(!seen.is_all());
            assert!(seen.record(&key(number, 100), &value(number, 100)));
        }
        assert!(seen.is_all() && !seen.is_repeated());
        assert!(seen.record(&key(7, 100), &value(7, 100)) && seen.is_repeated());
        let mut seen = Seen::none_of(100);
        assert!(!seen.record(&key(7, 100), &value(8, 100)));
        assert!(!seen.record(&key(7, 100), &value(7, 100)[1..]));
        assert!(!seen.record(&key(100, 200), &value(100, 200)), "beyond the last");
        assert!(!seen.record(b"0123456789abcdef", b"") && !seen.record(b"", b""));
    }
}

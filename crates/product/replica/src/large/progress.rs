//! Progress of the scrub of large values: the value being read, its checksum so far, and how many
//! bytes may be read now.

use nicekv_proto::OpId;
use nicekv_proto::large::Reference;
use nicekv_transport::Checksum;

/// The disk keeps a checksum for each block of this size, and can verify only whole blocks.
const BLOCK_BYTES: u64 = 64 << 10;
/// Most bytes to read at one heartbeat, so that other reads do not wait long.
pub(super) const READ_BYTES_MAX: u64 = 4 * BLOCK_BYTES;

/// Progress of the current pass over all values.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueScrub {
    /// When the next pass may start.
    pub(super) next_ns: u64,
    /// When the current pass started; `None` between passes.
    pub(super) begun_ns: Option<u64>,
    /// The last value that was finished, and the one being read.
    pub(super) after: Option<OpId>,
    pub(super) current: Option<Current>,
    pub(super) is_pending: bool,
    /// Bytes that the scrub's rate allows to be read now.
    pub(super) credit_bytes: u64,
}

/// The value that is being read.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) reference: Reference,
    /// Checksum of all bytes before `offset`.
    pub(super) checksum: Checksum,
    pub(super) offset: u32,
}

impl ValueScrub {
    /// The next part to read of the current value (name, offset, length): whole blocks, or the rest
    /// if it is shorter. `None` if there is not enough credit.
    pub(super) fn next_read(&mut self) -> Option<(OpId, u32, u32)> {
        let Current { reference, offset, .. } = self.current.as_ref()?;
        let left = u64::from(reference.length - offset);
        let bytes = if left <= self.credit_bytes { left } else { self.credit_bytes & !(BLOCK_BYTES - 1) };
        self.credit_bytes -= bytes;
        (bytes > 0).then_some((reference.name, *offset, bytes as u32))
    }

    /// Takes in a part; `None`: the disk could not read it. Returns false if the value is known not
    /// to match its reference.
    pub(super) fn take(&mut self, bytes: Option<&[u8]>) -> bool {
        self.is_pending = false;
        let (Some(mut current), Some(bytes)) = (self.current.take(), bytes) else { return false };
        current.checksum.update(bytes);
        current.offset += bytes.len() as u32;
        if current.offset == current.reference.length {
            return current.checksum.finish() == current.reference.checksum;
        }
        self.current = Some(current);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;
    use nicekv_transport::checksum;

    const LENGTH: usize = 150_000;

    fn value() -> Vec<u8> {
        (0..LENGTH).map(|at| (at / 7) as u8).collect()
    }

    fn begun(credit_bytes: u64) -> ValueScrub {
        let name = OpId { client: ClientId(1), sequence: 2 };
        let reference = Reference { name, length: LENGTH as u32, checksum: checksum(&value()) };
        let current = Some(Current { reference, checksum: Checksum::new(), offset: 0 });
        ValueScrub { current, credit_bytes, is_pending: true, ..ValueScrub::default() }
    }

    /// Reads a value in parts, with this much credit for each. Returns whether it matches its
    /// reference.
    fn read_through(credit_bytes: u64, value: &[u8]) -> bool {
        let mut scrub = begun(0);
        loop {
            scrub.credit_bytes += credit_bytes;
            let Some((_, offset, bytes)) = scrub.next_read() else { continue };
            let is_well = scrub.take(Some(&value[offset as usize..][..bytes as usize]));
            if !is_well || scrub.current.is_none() {
                return is_well;
            }
        }
    }

    #[test]
    fn blocks_are_read_at_the_rate_and_the_last_is_shorter() {
        let mut scrub = begun(BLOCK_BYTES - 1);
        assert_eq!(scrub.next_read(), None);
        scrub.credit_bytes = 2 * BLOCK_BYTES + 5;
        assert_eq!(scrub.next_read().map(|(_, offset, bytes)| (offset, bytes)), Some((0, 131_072)));
        assert_eq!(scrub.credit_bytes, 5);
        assert!(scrub.take(Some(&value()[..131_072])));
        scrub.credit_bytes = BLOCK_BYTES;
        assert_eq!(scrub.next_read().map(|(_, offset, bytes)| (offset, bytes)), Some((131_072, 18_928)));
    }

    #[test]
    fn value_with_another_digest_or_unreadable_is_not_whole() {
        for credit_bytes in [1_000, BLOCK_BYTES, READ_BYTES_MAX] {
            assert!(read_through(credit_bytes, &value()));
            for at in [0, 70_000, LENGTH - 1] {
                let mut damaged = value();
                damaged[at] ^= 1;
                assert!(!read_through(credit_bytes, &damaged), "byte {at}");
            }
        }
        assert!(!begun(BLOCK_BYTES).take(None));
    }
}

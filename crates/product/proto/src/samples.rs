//! Random samples of all messages, and tests that every message survives encoding and no other
//! bytes decode to it.

use crate::codec::Codec;
use crate::{Datagram, DecodeError, KeyDigest, KeyspaceId, OpId, stamp_reply_to};
use core::net::{Ipv4Addr, SocketAddrV4};
use zerocopy::{FromBytes, IntoBytes};

/// Samples per message.
const SAMPLES: u64 = 120;
/// Most bytes of variable length in a sample, so that it fits a datagram.
const VARYING_BYTES_MAX: usize = 1_100;

/// A small pseudo-random generator.
#[allow(unreachable_pub, reason = "codecs, which are public, have samples")]
pub struct Random {
    state: u64,
    varying_bytes_left: usize,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, varying_bytes_left: VARYING_BYTES_MAX }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// `minimum..=maximum` bytes; usually few.
    pub(crate) fn bytes(&mut self, minimum: usize, maximum: usize) -> &'static [u8] {
        let usual = if self.below(8) == 0 { maximum } else { maximum.min(24) };
        let length = minimum + self.below(usual.min(self.varying_bytes_left).max(minimum) - minimum + 1);
        self.varying_bytes_left -= length.min(self.varying_bytes_left);
        (0..length).map(|_| self.next() as u8).collect::<Vec<_>>().leak()
    }

    /// Length of a list whose entries have at least `bytes` bytes.
    pub(crate) fn count(&mut self, bytes: usize, maximum: usize) -> usize {
        let count = self.below(4.min(maximum) + 1).min(self.varying_bytes_left / bytes);
        self.varying_bytes_left -= count * bytes;
        count
    }

    /// Decodes a value from bytes that are often small numbers, so that values that must be
    /// consistent sometimes are.
    pub(crate) fn layout<L: FromBytes + IntoBytes, T>(
        &mut self,
        read: impl Fn(&L) -> Result<T, DecodeError>,
    ) -> T {
        loop {
            let mut layout = L::new_zeroed();
            for number in layout.as_mut_bytes().chunks_mut(8) {
                let small = self.coin();
                number.fill_with(|| if small { 0 } else { self.next() as u8 });
                if small && let Some(last) = number.last_mut() {
                    *last = self.below(4) as u8;
                }
            }
            if let Ok(value) = read(&layout) {
                return value;
            }
        }
    }
}

/// Types with samples that have no codec.
pub(crate) trait Sample {
    fn sample(random: &mut Random) -> Self;
}

macro_rules! of_header {
    ($($type:ty),*) => { $(
        impl Sample for $type {
            fn sample(random: &mut Random) -> Self {
                <Self as Codec>::sample(random)
            }
        }
    )* };
}
of_header!(OpId, KeyDigest, KeyspaceId);

impl Sample for Option<SocketAddrV4> {
    fn sample(random: &mut Random) -> Self {
        let port = 1 + random.below(usize::from(u16::MAX)) as u16;
        random.coin().then(|| SocketAddrV4::new(Ipv4Addr::from(random.next() as u32), port))
    }
}

/// Checks that each message decodes to itself, and that a truncated, extended or bit-flipped one is
/// refused, or decodes to a message that encodes to exactly these bytes.
pub(crate) fn check(sample: impl Fn(&mut Random) -> Datagram<'static>) {
    for seed in 1..=SAMPLES {
        let message = sample(&mut Random::new(seed));
        let mut bytes = b"left over".to_vec();
        message.encode(&mut bytes);
        let (header, decoded) =
            Datagram::decode(&bytes).unwrap_or_else(|error| panic!("{message:?}: {error}"));
        assert_eq!(decoded, message);
        for length in 0..bytes.len() {
            assert!(Datagram::decode(&bytes[..length]).is_err(), "{length} bytes of {message:?}");
        }
        assert!(Datagram::decode(&[&bytes[..], b"x"].concat()).is_err(), "more than {message:?}");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok((other_header, other)) = Datagram::decode(&changed) {
                assert!((&other_header, &other) != (&header, &message), "bit {bit} of {message:?}");
                let mut again = Vec::new();
                other.encode(&mut again);
                if let Some(address) = other_header.reply_to {
                    stamp_reply_to(&mut again, address);
                }
                assert_eq!(again, changed, "bit {bit} of {message:?} gives {other:?}");
            }
        }
    }
}

/// The same for parts that are not datagrams.
pub(crate) fn check_part<C: Codec>()
where
    for<'a> C::Value<'a>: PartialEq + core::fmt::Debug,
{
    let decode = |bytes: &[u8], then: &dyn Fn(C::Value<'_>)| {
        let mut reader = crate::bytes::Reader::new(bytes);
        let value = crate::codec::read::<C>("part", &mut reader)?;
        reader.finish("part")?;
        then(value);
        Ok::<_, DecodeError>(())
    };
    for seed in 1..=SAMPLES {
        let part = C::sample(&mut Random::new(seed));
        let mut bytes = Vec::new();
        crate::codec::append::<C>(&part, &mut bytes);
        decode(&bytes, &|decoded| assert_eq!(format!("{decoded:?}"), format!("{part:?}"))).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&changed, &|other| {
                let mut again = Vec::new();
                crate::codec::append::<C>(&other, &mut again);
                assert_eq!(again, changed, "bit {bit} of {part:?} gives {other:?}");
            });
        }
    }
}

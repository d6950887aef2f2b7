//! Fields with several entries, which follow the fixed part.

use super::{Codec, append, read};
use crate::DecodeError;
use crate::bytes::{Reader, in_range};
#[cfg(test)]
use crate::samples::Random;
use alloc::vec::Vec;
use core::marker::PhantomData;
use zerocopy::network_endian::U16;

/// A short list; its length is in the fixed part, at most `MAX`, which must fit the layout `Count`.
pub struct List<Count, T, const MAX: usize>(PhantomData<(Count, T)>);

impl<Count, T, const MAX: usize> Codec for List<Count, T, MAX>
where
    Count: for<'a> Codec<Value<'a> = Count> + TryFrom<usize> + TryInto<usize> + Copy,
    T: for<'a> Codec<Value<'a> = T> + 'static,
{
    type Value<'a> = Vec<T>;
    type Layout = Count::Layout;

    fn layout(entries: &Vec<T>) -> Count::Layout {
        assert!(entries.len() <= MAX, "{} entries of at most {MAX}", entries.len());
        let Ok(count) = Count::try_from(entries.len()) else { unreachable!("{MAX} fits") };
        Count::layout(&count)
    }

    fn append_tail(entries: &Vec<T>, out: &mut Vec<u8>) {
        entries.iter().for_each(|entry| append::<T>(entry, out));
    }

    fn read<'a>(
        field: &'static str,
        count: &Count::Layout,
        tail: &mut Reader<'a>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = Count::read(field, count, tail)?.try_into().unwrap_or(usize::MAX);
        let count = in_range(field, count, 0, MAX)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(read::<T>(field, tail)?);
        }
        Ok(entries)
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Vec<T> {
        let count = random.count(size_of::<T::Layout>(), MAX);
        (0..count).map(|_| T::sample(random)).collect()
    }
}

/// Entries of a message on the hot path, which are never collected into a vector.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a, T> {
    /// To be sent.
    Values(&'a [T]),
    /// Encoded one after the other, or received and verified to be well-formed.
    Encoded {
        /// Number of entries.
        count: usize,
        /// Their bytes.
        bytes: &'a [u8],
    },
}

/// An entry type of [`Entries`].
pub trait InList<'a>: Copy {
    /// Its codec.
    type Codec: Codec<Value<'a> = Self>;
}

impl<'a, T: InList<'a>> Entries<'a, T> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Encoded { count, .. } => *count,
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (values, count, bytes): (&'a [T], _, &'a [u8]) = match *self {
            Self::Values(values) => (values, 0, &[]),
            Self::Encoded { count, bytes } => (&[], count, bytes),
        };
        let mut reader = Reader::new(bytes);
        let encoded =
            (0..count).map(move |_| read::<T::Codec>("entry", &mut reader).expect("checked by decode"));
        values.iter().copied().chain(encoded)
    }
}

impl<'a, T: InList<'a> + PartialEq> PartialEq for Entries<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// [`Entries`] of `T`; their number is in the fixed part.
pub struct ListOf<T>(PhantomData<T>);

impl<T: Codec> Codec for ListOf<T>
where
    for<'a> T::Value<'a>: InList<'a, Codec = T>,
{
    type Value<'a> = Entries<'a, T::Value<'a>>;
    type Layout = U16;

    fn layout(entries: &Entries<'_, T::Value<'_>>) -> U16 {
        let count = match entries {
            Entries::Values(values) => values.len(),
            Entries::Encoded { count, .. } => *count,
        };
        (count as u16).into()
    }

    fn append_tail(entries: &Entries<'_, T::Value<'_>>, out: &mut Vec<u8>) {
        match entries {
            Entries::Values(values) => values.iter().for_each(|value| append::<T>(value, out)),
            Entries::Encoded { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    fn read<'a>(
        field: &'static str,
        count: &U16,
        tail: &mut Reader<'a>,
    ) -> Result<Entries<'a, T::Value<'a>>, DecodeError> {
        let count = usize::from(count.get());
        let before = *tail;
        for _ in 0..count {
            read::<T>(field, tail)?;
        }
        Ok(Entries::Encoded { count, bytes: before.until(tail) })
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> Entries<'static, T::Value<'static>> {
        let count = random.count(size_of::<T::Layout>(), usize::MAX);
        Entries::Values((0..count).map(|_| T::sample(random)).collect::<Vec<_>>().leak())
    }
}

/// Values of `T`, encoded one after the other, up to the end of the message.
pub struct RestOf<T>(PhantomData<T>);

impl<T: Codec> Codec for RestOf<T> {
    type Value<'a> = &'a [u8];
    type Layout = [u8; 0];

    fn layout(_: &&[u8]) -> [u8; 0] {
        []
    }

    fn append_tail(values: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(values);
    }

    fn read<'a>(field: &'static str, _: &[u8; 0], tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let before = *tail;
        while !tail.is_empty() {
            read::<T>(field, tail)?;
        }
        Ok(before.until(tail))
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        let mut values = Vec::new();
        for _ in 0..random.count(size_of::<T::Layout>(), usize::MAX) {
            append::<T>(&T::sample(random), &mut values);
        }
        values.leak()
    }
}

/// At least one value of `T`, encoded one after the other; their length in bytes, at most `MAX`, is
/// in the fixed part.
pub struct ListedBytes<T, const MAX: usize>(PhantomData<T>);

impl<T: Codec, const MAX: usize> Codec for ListedBytes<T, MAX> {
    type Value<'a> = &'a [u8];
    type Layout = U16;

    fn layout(values: &&[u8]) -> U16 {
        (values.len() as u16).into()
    }

    fn append_tail(values: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(values);
    }

    fn read<'a>(field: &'static str, length: &U16, tail: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        let length = in_range(field, length.get().into(), 1, MAX)?;
        let values = tail.bytes(length, field)?;
        RestOf::<T>::read(field, &[], &mut Reader::new(values))
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> &'static [u8] {
        loop {
            let mut values = Vec::new();
            (0..=random.below(2)).for_each(|_| append::<T>(&T::sample(random), &mut values));
            // Keeps samples short.
            if values.len() <= MAX {
                return values.leak();
            }
        }
    }
}

//! Merges several sorted sequences of writes.

use crate::{Result, StoreError};
use std::{borrow::Cow, cmp::Ordering, collections::BinaryHeap};

/// A key and its write; `None` is a removal.
pub(super) type Written<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);
pub(super) type Source<'a> = Box<dyn Iterator<Item = Result<Written<'a>>> + 'a>;

/// Merges sources; the first source that has a key wins. An error replaces what could not be read;
/// items after it are meaningless.
pub(super) struct Merged<'a> {
    sources: Vec<Source<'a>>,
    /// Next write of each source that is not exhausted.
    heads: BinaryHeap<Head<'a>>,
    failure: Option<StoreError>,
}

struct Head<'a> {
    written: Written<'a>,
    source: usize,
}

impl<'a> Merged<'a> {
    pub(super) fn new(sources: Vec<Source<'a>>) -> Self {
        let heads = BinaryHeap::with_capacity(sources.len());
        let mut merged = Self { sources, heads, failure: None };
        (0..merged.sources.len()).for_each(|source| merged.advance(source));
        merged
    }

    fn advance(&mut self, source: usize) {
        match self.sources[source].next() {
            Some(Ok(written)) => self.heads.push(Head { written, source }),
            Some(Err(error)) => self.failure = self.failure.take().or(Some(error)),
            None => {}
        }
    }

    fn pop(&mut self) -> Option<Written<'a>> {
        let Head { written, source } = self.heads.pop()?;
        self.advance(source);
        Some(written)
    }
}

impl<'a> Iterator for Merged<'a> {
    type Item = Result<Written<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let newest = self.pop();
        while let (Some((key, _)), Some(head)) = (&newest, self.heads.peek())
            && *key == head.written.0
        {
            self.pop();
        }
        self.failure.take().map(Err).or(newest.map(Ok))
    }
}

impl Ord for Head<'_> {
    /// Reversed for the max-heap: the least key of the first source comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.written.0, other.source).cmp(&(&self.written.0, self.source))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys whose values are the name of their source.
    fn source(name: &'static [u8], keys: &'static [u8]) -> Source<'static> {
        Box::new(keys.chunks(1).map(move |key| Ok((key.into(), Some(name.into())))))
    }

    fn damaged() -> StoreError {
        StoreError::Corrupt { partition: 7, key: b"c".to_vec() }
    }

    #[test]
    fn first_source_of_a_key_wins() {
        let sources =
            vec![source(b"new", b"bdz"), source(b"", b""), source(b"old", b"abcd"), source(b"tree", b"adx")];
        let found: Vec<_> = Merged::new(sources)
            .map(|written| written.expect("no source fails"))
            .map(|(key, value)| (key[0], value.expect("nothing was removed").into_owned()))
            .collect();
        let expected: [(u8, &[u8]); 6] =
            [(b'a', b"old"), (b'b', b"new"), (b'c', b"old"), (b'd', b"new"), (b'x', b"tree"), (b'z', b"new")];
        assert_eq!(found, expected.map(|(key, name)| (key, name.to_vec())));
    }

    #[test]
    fn error_precedes_items_that_it_may_affect() {
        let failing = || -> Source<'static> {
            let before = [Ok((Cow::from(&b"b"[..]), None)), Err(damaged())];
            Box::new(before.into_iter())
        };
        let mut merged = Merged::new(vec![source(b"new", b"adz"), failing()]);
        assert!(matches!(merged.next(), Some(Ok((key, Some(_)))) if *key == *b"a"));
        assert!(matches!(merged.next(), Some(Err(StoreError::Corrupt { partition: 7, .. }))));
        let at_once: Source<'static> = Box::new([Err(damaged())].into_iter());
        assert!(matches!(Merged::new(vec![source(b"new", b"a"), at_once]).next(), Some(Err(_))));
    }
}

//! The arguments of one command. Number 0 is the command's name.

use crate::limits::ARGUMENT_BYTES_KEPT;
use alloc::vec::Vec;
use nicekv_client::SharedBytes;

/// Where an argument is in [`ArgumentList::data`]: its bytes end where the next one's begin. There
/// may be a million of them.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    /// Length as sent; more than is kept if the argument was cut short.
    pub(super) length: u32,
}

/// One command, as the parser or a script collected it.
#[derive(Debug, Default)]
pub struct ArgumentList {
    pub(super) data: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// Large arguments by number, ascending; `data` has none of their bytes.
    pub(super) large: Vec<(u32, SharedBytes)>,
    /// Longest argument that is kept whole.
    value_bytes_max: usize,
}

/// A complete command.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    list: &'a ArgumentList,
}

impl ArgumentList {
    pub fn new(value_bytes_max: usize) -> Self {
        Self { value_bytes_max, ..Self::default() }
    }

    pub(super) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Replaces all arguments by copies of `words`. Long ones are cut, as the parser does.
    pub fn copy_from(&mut self, words: &[&[u8]]) {
        self.clear();
        for word in words {
            let kept = if word.len() > self.value_bytes_max { ARGUMENT_BYTES_KEPT } else { word.len() };
            self.spans.push(Span { start: self.data.len() as u32, length: word.len() as u32 });
            self.data.extend_from_slice(&word[..kept.min(word.len())]);
        }
    }

    pub(super) fn clear(&mut self) {
        self.data.clear();
        self.spans.clear();
        self.large.clear();
    }

    /// All arguments, of which there must be at least one.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments { list: self }
    }
}

impl<'a> Arguments<'a> {
    /// At least 1.
    pub fn count(&self) -> usize {
        self.list.spans.len()
    }

    /// An argument, or the beginning of one that was cut short.
    pub fn prefix(&self, index: usize) -> &'a [u8] {
        let ArgumentList { spans, data, large, .. } = self.list;
        if !large.is_empty()
            && let Ok(at) = large.binary_search_by_key(&(index as u32), |(number, _)| *number)
        {
            return &large[at].1;
        }
        let end = spans.get(index + 1).map_or(data.len(), |next| next.start as usize);
        &data[spans[index].start as usize..end]
    }

    /// The buffer that holds these bytes, if they are a large argument.
    pub fn shared(&self, bytes: &[u8]) -> Option<&'a SharedBytes> {
        let mut all = self.list.large.iter().map(|(_, shared)| shared);
        all.find(|shared| core::ptr::eq::<[u8]>(&***shared, bytes))
    }

    /// Longer arguments are cut short.
    pub fn bytes_max(&self) -> usize {
        self.list.value_bytes_max
    }

    /// Length as sent, also of an argument that was cut short.
    pub fn length(&self, index: usize) -> usize {
        self.list.spans[index].length as usize
    }
}

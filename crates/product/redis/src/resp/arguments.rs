//! The arguments of one command. Number 0 is the command's name.

use crate::limits::ARGUMENT_BYTES_KEPT;
use alloc::vec::Vec;
use nicekv_client::SharedBytes;

/// Position of an argument in [`ArgumentList::data`]: its bytes end where those of the next one
/// begin. It is small, because there may be a million.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    /// The length that was sent; if the argument was truncated, fewer bytes are kept.
    pub(super) length: u32,
}

/// The arguments of one command, as collected by the parser or a script.
#[derive(Debug, Default)]
pub struct ArgumentList {
    pub(super) data: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// Large arguments by number, in ascending order; their bytes are not in `data`.
    pub(super) large: Vec<(u32, SharedBytes)>,
    /// Longest argument that is not truncated.
    value_bytes_max: usize,
}

/// The arguments of a complete command.
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

    /// Replaces all arguments by copies of `words`. Long ones are truncated as by the parser.
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

    /// The arguments, of which there must be at least one.
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments { list: self }
    }
}

impl<'a> Arguments<'a> {
    /// Number of arguments, including the name; at least 1.
    pub fn count(&self) -> usize {
        self.list.spans.len()
    }

    /// An argument; if it was truncated, only its beginning.
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

    /// The buffer that contains these bytes, if they are a large argument.
    pub fn shared(&self, bytes: &[u8]) -> Option<&'a SharedBytes> {
        let mut all = self.list.large.iter().map(|(_, shared)| shared);
        all.find(|shared| core::ptr::eq::<[u8]>(&***shared, bytes))
    }

    /// Longest argument that is not truncated.
    pub fn bytes_max(&self) -> usize {
        self.list.value_bytes_max
    }

    /// The length that was sent, even if the argument was truncated.
    pub fn length(&self, index: usize) -> usize {
        self.list.spans[index].length as usize
    }
}

//! How many replies were errors, by their first words: counted by the thread that writes them, as each serves connections of its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Different first words that are told apart.
const WORDS_MAX: usize = 128;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BY_WORD: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts one with this text.
pub(crate) fn note(text: &[u8]) {
    COUNT.set(COUNT.get() + 1);
    let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let word = String::from_utf8_lossy(word);
    BY_WORD.with_borrow_mut(|by_word| {
        if let Some(count) = by_word.get_mut(&*word) {
            *count += 1;
        } else if by_word.len() < WORDS_MAX {
            by_word.insert(word.into_owned(), 1);
        }
    });
}

/// How many this thread has counted.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

/// Those that were counted since this was called last.
pub(crate) fn take() -> BTreeMap<String, u64> {
    BY_WORD.take()
}

//! Long values: a short word, a slash, and bytes that are derived from the word. Histories store
//! only the word.

use nicekv_history::model::Change;
use nicekv_history::{Action, Call};

/// Maximum length as a power of two. Lengths have an evenly distributed logarithm.
#[derive(Clone, Copy)]
pub(super) struct Lengths(u32);

/// Up to 4 MiB.
pub(super) const LARGE: Lengths = Lengths(22);
/// Up to 32 KiB: sent in fragments, but not in chunks.
pub(super) const WHOLE: Lengths = Lengths(15);

const END: u8 = b'/';
/// Marks a value in a history that differs from every value that was put.
const DAMAGED: &[u8] = b"damaged: ";

/// A hash function of numbers.
fn scrambled(number: u64) -> u64 {
    let number = (number ^ number >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (number ^ number >> 27).wrapping_mul(0x81da_def4_bc2d_d44d)
}

/// The long value that is derived from this word.
pub(super) fn of_word(word: &[u8], Lengths(bits_max): Lengths) -> Vec<u8> {
    let seed = word.iter().fold(7, |seed, byte| scrambled(seed ^ u64::from(*byte)));
    let bits = seed >> 8 & 0xff_ffff;
    let length = (f64::from(bits_max) * bits as f64 / f64::from(1 << 24)).exp2() as usize;
    let mut value = Vec::with_capacity(word.len() + length + 8);
    value.extend_from_slice(word);
    value.push(END);
    let whole = value.len() + length;
    let mut state = seed;
    while value.len() < whole {
        state = scrambled(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(whole);
    value
}

/// The word of a value. A damaged value gets a mark that no put value has.
fn word_of(value: &[u8], lengths: Lengths) -> Vec<u8> {
    let word = value.split(|byte| *byte == END).next().unwrap_or_default();
    if of_word(word, lengths) == value { word.to_vec() } else { [DAMAGED, word].concat() }
}

/// The action with the word in it replaced by the value.
pub(super) fn expanded(action: &Action, lengths: Lengths) -> Action {
    let mut action = action.clone();
    if let Action::Update { change: Change::Set(value), .. } = &mut action {
        *value = of_word(value, lengths);
    }
    action
}

/// The call with the values in it replaced by their words.
pub(super) fn shortened(mut call: Call, lengths: Lengths) -> Call {
    if let Action::Update { change: Change::Set(value), .. } = &mut call.action {
        *value = word_of(value, lengths);
    }
    if let Some(value) = call.answered.as_mut().and_then(|(_, answer)| answer.value.as_mut()) {
        *value = word_of(value, lengths);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_values_are_detected() {
        let mut longest = 0;
        for number in 0..300 {
            let word = number.to_string().into_bytes();
            let value = of_word(&word, LARGE);
            longest = longest.max(value.len());
            assert_eq!(word_of(&value, LARGE), word);
            let mut damaged = value.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert_ne!(word_of(&damaged, LARGE), word, "{number}");
            assert_ne!(word_of(&value[..value.len() - 1], LARGE), word, "{number}");
        }
        assert!((1 << 20..=(1 << 22) + 8).contains(&longest), "{longest}");
    }
}

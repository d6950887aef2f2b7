//! Ranges of Redis commands: both ends are inclusive, and negative indexes count from the end.

/// The bytes from `start` to `end`.
pub(crate) fn slice(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    indexes(value.len(), start, end).map_or(&[], |(start, end)| &value[start..=end])
}

/// The first and last index, of `length` elements, that are in the range; `None` if it is empty.
pub(crate) fn indexes(length: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_front = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_front(start), from_front(end).min(length - 1));
    (start <= end).then_some((start as usize, end as usize))
}

//! Ranges of Redis' commands: inclusive, and counted from the end where negative.

/// The bytes from `start` to `end`.
pub(crate) fn slice(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    indexes(value.len(), start, end).map_or(&[], |(start, end)| &value[start..=end])
}

/// The first and the last of `length` places that are in a range; `None` if it is empty.
pub(crate) fn indexes(length: usize, start: i64, end: i64) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_front = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_front(start), from_front(end).min(length - 1));
    (start <= end).then_some((start as usize, end as usize))
}

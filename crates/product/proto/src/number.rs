//! Numbers in values: how they are read and written, in one place for nodes, clients and gateways. The rules are those of Redis.

mod long_double;

pub use long_double::LongDouble;

/// A decimal 64-bit integer, written the one way: no sign but `-`, no leading zeros, no spaces.
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = match digits.as_bytes() {
        [b'0'] => text == "0",
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in
            [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(parse_integer(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "01", "+1", " 1", "1 ", "1.0", "9223372036854775808", "\u{0663}"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}

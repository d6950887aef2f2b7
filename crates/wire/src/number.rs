//! Numbers in values: how they are read and written, in one place for nodes, clients and gateways. The rules are those of Redis.

use alloc::format;
use alloc::string::{String, ToString};

/// Significant decimal digits that a written float keeps. One more would show that 0.1 + 0.2 is not 0.3 in binary.
const FLOAT_DIGITS: usize = 15;

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

/// A finite decimal number, with or without exponent; no spaces.
pub fn parse_float(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok()?;
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let value: f64 = if numeric { text.parse().ok()? } else { return None };
    value.is_finite().then_some(value)
}

/// Writes a finite float without exponent and without trailing zeros, to 15 significant digits (a whole number to all of its digits).
pub fn format_float(value: f64) -> String {
    if value.abs() < i64::MAX as f64 && value == value as i64 as f64 {
        return (value as i64).to_string();
    }
    // Through the scientific form: it rounds to significant digits, the plain form to decimals.
    let rounded: f64 = format!("{value:.*e}", FLOAT_DIGITS - 1).parse().expect("a float reads back");
    if rounded == 0.0 { "0".to_string() } else { format!("{rounded}") }
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

    #[test]
    fn floats_are_written_plainly() {
        for (value, text) in [
            (10.6, "10.6"),
            (0.1 + 0.2, "0.3"),
            (5.0e3 + 200.0, "5200"),
            (-0.0, "0"),
            (1e21, "1000000000000000000000"),
            (3.0, "3"),
            (9_007_199_254_740_991.0, "9007199254740991"),
        ] {
            assert_eq!(format_float(value), text);
        }
    }

    #[test]
    fn floats_are_read_strictly() {
        assert_eq!(parse_float(b"5.0e3"), Some(5000.0));
        assert_eq!(parse_float(b"-.5"), Some(-0.5));
        for text in ["", " 1", "inf", "nan", "1e400", "abc", "0x10"] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
    }
}

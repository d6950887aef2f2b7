//! Standard output, and safe printing of keys and values: they must neither break lines nor control the terminal.

use crate::failure::Failure;
use std::io::Write;

/// Writes to standard output; a closed pipe is not an error.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(error)),
        _ => Ok(()),
    }
}

/// Makes bytes printable: control and invisible characters and backslashes are escaped as in Rust
/// strings, bytes that are not UTF-8 as `\xNN`. Different inputs never print alike.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for part in bytes.utf8_chunks() {
        for one in part.valid().chars() {
            match one {
                '"' | '\'' => shown.push(one),
                _ => shown.extend(one.escape_debug()),
            }
        }
        shown.extend(part.invalid().escape_ascii().map(char::from));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn only_unprintable_characters_are_escaped() {
        for (bytes, expected) in [
            (b"plain name/1".as_slice(), "plain name/1"),
            ("Z\u{fc}rich \"1\"".as_bytes(), "Z\u{fc}rich \"1\""),
            (b"two\nlines\t\r\0", r"two\nlines\t\r\0"),
            (b"\x1b[31mred\x7f", r"\u{1b}[31mred\u{7f}"),
            ("\u{9b}1m\u{202e}gnp".as_bytes(), r"\u{9b}1m\u{202e}gnp"),
            (br"back\slash", r"back\\slash"),
            (b"\xffbytes\xfe\xc3", r"\xffbytes\xfe\xc3"),
        ] {
            assert_eq!(printable(bytes), expected);
        }
    }
}

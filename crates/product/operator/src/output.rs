//! Standard output, and text of others on a terminal: what they hold must neither break lines nor command the terminal.

use crate::failure::Failure;
use std::io::Write;

/// A reader that has seen enough is no failure.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::environment(error)),
        _ => Ok(()),
    }
}

/// The text as it is, where it is printable; control characters, other characters that are not to be seen, and backslashes as in Rust's strings, and bytes that
/// are no text as `\xNN`. Two texts are never shown alike.
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
    fn only_what_is_not_printable_is_escaped() {
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

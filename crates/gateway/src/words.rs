//! The words of a command as others may see them: in the slow log, and by MONITOR. Passwords are left out, as in Redis.

use crate::parser::Arguments;
use std::borrow::Cow;

/// Arguments of an entry of the slow log, and bytes of each (as in Redis); what is beyond is counted.
const WORDS_MAX: usize = 32;
const WORD_BYTES_MAX: usize = 128;
const REDACTED: &[u8] = b"(redacted)";

/// See the module. They are kept as one piece: most have few bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Words {
    /// Of a command by its name, cut as an entry of the slow log is.
    pub(crate) fn of(name: &str, arguments: Arguments<'_>) -> Self {
        let mut words = Self::default();
        let count = arguments.count();
        for index in 0..count {
            if index + 1 == WORDS_MAX && count > WORDS_MAX {
                words.push(format!("... ({} more arguments)", count - index).as_bytes(), None);
                break;
            }
            let word = shown(name, arguments, index);
            let is_whole = matches!(word, Cow::Owned(_));
            let length = if is_whole { word.len() } else { arguments.length(index) };
            let kept = &word[..word.len().min(WORD_BYTES_MAX)];
            let more = length - kept.len();
            words.push(kept, (more > 0).then_some(more));
        }
        words
    }

    fn push(&mut self, word: &[u8], more: Option<usize>) {
        self.bytes.extend_from_slice(word);
        if let Some(more) = more {
            self.bytes.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
        }
        self.ends.push(self.bytes.len() as u32);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }

    /// Bytes that they hold.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// One word of a command.
pub(crate) fn shown<'a>(name: &str, arguments: Arguments<'a>, index: usize) -> Cow<'a, [u8]> {
    let is = |index: usize, word: &str| {
        index < arguments.count() && arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    };
    let is_secret = match name {
        "auth" => index > 0,
        "acl" => index > 2 && is(1, "setuser"),
        "hello" => (2..index).any(|before| is(before, "auth") && index <= before + 2),
        _ => false,
    };
    if is_secret { Cow::Owned(REDACTED.into()) } else { Cow::Borrowed(arguments.prefix(index)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::Parser;

    fn words(parts: &[&[u8]]) -> Vec<String> {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            bytes.extend(format!("${}\r\n", part.len()).bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        let mut parser = Parser::new(1 << 20);
        parser.parse(&bytes).unwrap();
        let arguments = parser.command().unwrap();
        let name = String::from_utf8_lossy(parts[0]).to_lowercase();
        Words::of(&name, arguments).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn long_ones_are_cut_and_passwords_are_not_shown() {
        let long = [b'x'; 130];
        assert_eq!(words(&[b"SET", b"k", &long])[2], format!("{}... (2 more bytes)", "x".repeat(128)));
        let many = vec![&b"k"[..]; 33];
        let cut = words(&many);
        assert_eq!((cut.len(), cut[31].as_str()), (32, "... (2 more arguments)"));
        assert_eq!(words(&many[..32]).len(), 32);
        assert_eq!(words(&[b"AUTH", b"user", b"secret"]), ["AUTH", "(redacted)", "(redacted)"]);
        let hello = words(&[b"HELLO", b"3", b"AUTH", b"user", b"secret", b"SETNAME", b"me"]);
        assert_eq!(hello, ["HELLO", "3", "AUTH", "(redacted)", "(redacted)", "SETNAME", "me"]);
        let acl = words(&[b"ACL", b"SETUSER", b"user", b">secret"]);
        assert_eq!(acl, ["ACL", "SETUSER", "user", "(redacted)"]);
    }
}

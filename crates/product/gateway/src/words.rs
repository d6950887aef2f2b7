//! The words of a command as others may see them: in the slow log, and by MONITOR. Passwords are left out, as in Redis.

use crate::command::{Command, Kind};
use crate::parser::Arguments;

/// Arguments of an entry of the slow log, and bytes of each (as in Redis); what is beyond is counted.
const WORDS_MAX: usize = 32;
const WORD_BYTES_MAX: usize = 128;
const REDACTED: &[u8] = b"(redacted)";

/// The words of the commands of a connection that may become slow, in the order of the commands.
///
/// ```text
///   first ▼ of the oldest command that is not answered
///         │ 3 ⟨3 S E T⟩ ⟨1 k⟩ ⟨2 v v⟩ │ 2 ⟨3 G E T⟩ ⟨1 k⟩ │
/// ```
///
/// One buffer for all: almost none is ever looked at.
#[derive(Debug, Default)]
pub(crate) struct Said {
    bytes: Vec<u8>,
    /// Where they begin, counted from the connection's first.
    first: u64,
}

impl Said {
    /// Adds those of a command, cut as an entry of the slow log is; where they are.
    pub(crate) fn add(&mut self, command: &Command, arguments: Arguments<'_>) -> u64 {
        let at = self.end();
        let count = arguments.count();
        let kept = if count > WORDS_MAX { WORDS_MAX - 1 } else { count };
        self.bytes.push(count.min(WORDS_MAX) as u8);
        for index in 0..kept {
            let (word, length) = shown(command, arguments, index);
            let kept = &word[..word.len().min(WORD_BYTES_MAX)];
            match length - kept.len() {
                0 => self.push(kept, b""),
                more => self.push(kept, format!("... ({more} more bytes)").as_bytes()),
            }
        }
        if count > kept {
            self.push(b"", format!("... ({} more arguments)", count - kept).as_bytes());
        }
        at
    }

    /// A word and what is said of its rest, both short.
    fn push(&mut self, word: &[u8], rest: &[u8]) {
        self.bytes.push((word.len() + rest.len()) as u8);
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(rest);
    }

    fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// Those of the command that are there.
    pub(crate) fn words(&self, at: u64) -> Vec<Vec<u8>> {
        let (count, mut rest) = self.bytes[(at - self.first) as usize..].split_first().expect("as added");
        let word = |_| {
            let (length, words) = rest.split_first().expect("as added");
            let (word, others) = words.split_at((*length).into());
            rest = others;
            word.to_vec()
        };
        (0..*count).map(word).collect()
    }

    /// Those of commands before this one are not needed any more; `None`: of all.
    pub(crate) fn forget(&mut self, until: Option<u64>) {
        let over = (until.unwrap_or(self.end()) - self.first) as usize;
        // What is left is moved, so that is to be less.
        if over * 2 >= self.bytes.len() {
            self.bytes.drain(..over);
            self.first += over as u64;
        }
    }

    /// Bytes that they occupy.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// One word of a command, as much of it as is there, and how long it was.
pub(crate) fn shown<'a>(command: &Command, arguments: Arguments<'a>, index: usize) -> (&'a [u8], usize) {
    match is_secret(command, arguments, index) {
        true => (REDACTED, REDACTED.len()),
        false => (arguments.prefix(index), arguments.length(index)),
    }
}

/// Whether it is a password, or may be.
fn is_secret(command: &Command, arguments: Arguments<'_>, index: usize) -> bool {
    if command.kind != Kind::Connection {
        return false;
    }
    let is = |index: usize, word: &str| {
        index < arguments.count() && arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    };
    match command.name {
        "auth" => index > 0,
        "acl" => index > 2 && is(1, "setuser"),
        "hello" => (2..index).any(|before| is(before, "auth") && index <= before + 2),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::COMMANDS;
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
        let command = Command::find(parts[0]).unwrap_or(&COMMANDS[0]);
        let mut said = Said::default();
        said.add(command, arguments);
        let at = said.add(command, arguments);
        said.words(at).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn they_are_kept_while_a_command_that_is_as_old_is_not_answered() {
        let mut parser = Parser::new(1 << 20);
        parser.parse(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut said = Said::default();
        let add = |said: &mut Said| said.add(&COMMANDS[0], parser.command().unwrap());
        let places = [add(&mut said), add(&mut said), add(&mut said)];
        assert_eq!(places, [0, 6, 12]);
        said.forget(Some(places[1]));
        assert_eq!((said.bytes.len(), said.words(places[0])), (18, vec![b"PING".to_vec()]), "few are over");
        said.forget(Some(places[2]));
        assert_eq!((said.bytes.len(), said.words(places[2])), (6, vec![b"PING".to_vec()]));
        let newest = add(&mut said);
        said.forget(None);
        said.shrink();
        assert_eq!((said.memory(), add(&mut said)), (0, newest + 6));
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

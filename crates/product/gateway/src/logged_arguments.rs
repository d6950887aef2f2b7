//! The arguments of unanswered commands that may turn out to be slow, for the slow log.

use nicekv_redis::command::Command;
use nicekv_redis::redaction::shown;
use nicekv_redis::resp::Arguments;

/// Maximum arguments in an entry of the slow log, and maximum bytes of each, as in Redis. Arguments
/// and bytes beyond that are only counted.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// The arguments, in the order of the commands.
///
/// ```text
///   first ▼ the oldest command without an answer
///         │ 3 ⟨3 S E T⟩ ⟨1 k⟩ ⟨2 v v⟩ │ 2 ⟨3 G E T⟩ ⟨1 k⟩ │
/// ```
///
/// All share one buffer, because hardly any of them is ever read.
#[derive(Debug, Default)]
pub(crate) struct LoggedArguments {
    bytes: Vec<u8>,
    /// Offset of the buffer's first byte, counted from the beginning of the connection.
    first: u64,
}

impl LoggedArguments {
    /// Adds the arguments of a command, truncated as in the slow log. Returns their offset.
    pub(crate) fn add(&mut self, command: &Command, arguments: Arguments<'_>) -> u64 {
        let at = self.end();
        let count = arguments.count();
        let kept = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
        self.bytes.push(count.min(ARGUMENTS_MAX) as u8);
        for index in 0..kept {
            let (word, length) = shown(command, arguments, index);
            let kept = &word[..word.len().min(ARGUMENT_BYTES_MAX)];
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

    /// Adds an argument, followed by a note on how much of it was cut off. Both are short.
    fn push(&mut self, word: &[u8], rest: &[u8]) {
        self.bytes.push((word.len() + rest.len()) as u8);
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(rest);
    }

    fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// The arguments at an offset.
    pub(crate) fn at(&self, at: u64) -> Vec<Vec<u8>> {
        let (count, mut rest) = self.bytes[(at - self.first) as usize..].split_first().expect("as added");
        let word = |_| {
            let (length, words) = rest.split_first().expect("as added");
            let (word, others) = words.split_at((*length).into());
            rest = others;
            word.to_vec()
        };
        (0..*count).map(word).collect()
    }

    /// Discards arguments before this offset; `None`: all of them.
    pub(crate) fn forget(&mut self, until: Option<u64>) {
        let over = (until.unwrap_or(self.end()) - self.first) as usize;
        // Removing bytes moves the rest, so it waits until the rest is the smaller part.
        if over * 2 >= self.bytes.len() {
            self.bytes.drain(..over);
            self.first += over as u64;
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_redis::resp::ArgumentList;
    use nicekv_redis::table::{COMMANDS, find};

    fn list(words: &[&[u8]]) -> ArgumentList {
        let mut list = ArgumentList::new(1 << 20);
        list.copy_from(words);
        list
    }

    fn logged(words: &[&[u8]]) -> Vec<String> {
        let list = list(words);
        let command = find(words[0]).unwrap_or(&COMMANDS[0]);
        let mut logged = LoggedArguments::default();
        logged.add(command, list.arguments());
        let at = logged.add(command, list.arguments());
        logged.at(at).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn arguments_are_kept_while_an_older_command_is_unanswered() {
        let list = list(&[b"PING"]);
        let mut logged = LoggedArguments::default();
        let add = |logged: &mut LoggedArguments| logged.add(&COMMANDS[0], list.arguments());
        let places = [add(&mut logged), add(&mut logged), add(&mut logged)];
        assert_eq!(places, [0, 6, 12]);
        logged.forget(Some(places[1]));
        assert_eq!(
            (logged.bytes.len(), logged.at(places[0])),
            (18, vec![b"PING".to_vec()]),
            "too few are forgotten to move the rest"
        );
        logged.forget(Some(places[2]));
        assert_eq!((logged.bytes.len(), logged.at(places[2])), (6, vec![b"PING".to_vec()]));
        let newest = add(&mut logged);
        logged.forget(None);
        logged.shrink();
        assert_eq!((logged.memory(), add(&mut logged)), (0, newest + 6));
    }

    #[test]
    fn long_arguments_are_cut_and_passwords_redacted() {
        let long = [b'x'; 130];
        assert_eq!(logged(&[b"SET", b"k", &long])[2], format!("{}... (2 more bytes)", "x".repeat(128)));
        let many = vec![&b"k"[..]; 33];
        let cut = logged(&many);
        assert_eq!((cut.len(), cut[31].as_str()), (32, "... (2 more arguments)"));
        assert_eq!(logged(&many[..32]).len(), 32);
        assert_eq!(logged(&[b"AUTH", b"user", b"secret"]), ["AUTH", "(redacted)", "(redacted)"]);
    }
}

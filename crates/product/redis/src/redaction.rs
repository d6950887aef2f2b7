//! Hides passwords from logs and monitors, as Redis does.

use crate::command::{Command, Secrets};
use crate::resp::Arguments;

const REDACTED: &[u8] = b"(redacted)";

/// An argument with passwords hidden, as far as the parser kept it, and its full length.
pub fn shown<'a>(command: &Command, arguments: Arguments<'a>, index: usize) -> (&'a [u8], usize) {
    match is_secret(command.secrets, arguments, index) {
        true => (REDACTED, REDACTED.len()),
        false => (arguments.prefix(index), arguments.length(index)),
    }
}

fn is_secret(secrets: Secrets, arguments: Arguments<'_>, index: usize) -> bool {
    let is = |index: usize, word: &str| {
        index < arguments.count() && arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    };
    match secrets {
        Secrets::None => false,
        Secrets::All => index > 0,
        Secrets::AclRules => index > 2 && is(1, "setuser"),
        Secrets::HelloPassword => (2..index).any(|before| is(before, "auth") && index <= before + 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::ArgumentList;
    use crate::table::find;

    #[test]
    fn passwords_are_redacted() {
        for (words, expected) in [
            ("AUTH user secret", "AUTH (redacted) (redacted)"),
            ("HELLO 3 AUTH user secret SETNAME me", "HELLO 3 AUTH (redacted) (redacted) SETNAME me"),
            ("ACL SETUSER user >secret", "ACL SETUSER user (redacted)"),
            ("ACL GETUSER user", "ACL GETUSER user"),
            ("SET auth x", "SET auth x"),
        ] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let mut list = ArgumentList::new(100);
            list.copy_from(&words);
            let command = find(words[0]).unwrap();
            let all = (0..words.len()).map(|index| shown(command, list.arguments(), index).0);
            let all: Vec<_> = all.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            assert_eq!(all.join(" "), expected);
        }
    }
}

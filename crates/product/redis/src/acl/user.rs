//! A user: its passwords, and what its rules allow.

use super::command_rights::CommandRights;
use super::key_rights::{Access, KeyRights};
use super::password::PasswordHash;
use crate::command::Subject;
use crate::table::SUBJECTS;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_proto::glob;
use thiserror::Error;

/// Why a rule is refused; the texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    #[error("Syntax error")]
    Syntax,
    #[error("Unknown command or category name in ACL")]
    UnknownCommand,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    NoHash,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    #[error("Selectors are not supported: a user has one set of rules here")]
    Selector,
}

/// Maximum passwords of one user.
const PASSWORDS_MAX: usize = 64;

/// Computes the SHA-256 of a password.
pub type Sha256<'a> = &'a dyn Fn(&[u8]) -> [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: Vec<u8>,
    is_on: bool,
    /// Any password is accepted (`nopass`).
    has_no_password: bool,
    passwords: Vec<PasswordHash>,
    rights: CommandRights,
    keys: KeyRights,
    channels: Channels,
}

/// The channels that the user may publish to and subscribe to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Channels {
    is_all: bool,
    patterns: Vec<Vec<u8>>,
}

/// The refused command, key or channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// A command or subcommand.
    Command(&'static Subject),
    Key(&'a [u8]),
    /// A channel, or a pattern of channels.
    Channel(&'a [u8]),
}

impl Refusal<'_> {
    /// The refusal as ACL DRYRUN words it for this user.
    pub fn describe(&self, user: &User) -> Vec<u8> {
        match self {
            Self::Command(subject) => {
                let name = subject.name;
                [b"User ", &*user.name, b" has no permissions to run the '", name.as_bytes(), b"' command"]
                    .concat()
            }
            Self::Channel(channel) => {
                [b"User ", &*user.name, b" has no permissions to access the '", *channel, b"' channel"]
                    .concat()
            }
            Self::Key(key) => {
                [b"User ", &*user.name, b" has no permissions to access the '", *key, b"' key"].concat()
            }
        }
    }
}

impl User {
    /// A new user of ACL SETUSER: it is off and has no permissions.
    pub fn new(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            is_on: false,
            has_no_password: false,
            passwords: Vec::new(),
            rights: CommandRights::default(),
            keys: KeyRights::default(),
            channels: Channels::default(),
        }
    }

    /// The default user if none is configured: it needs no password and may do everything.
    pub fn open(name: &[u8]) -> Self {
        let mut user = Self { is_on: true, has_no_password: true, ..Self::new(name) };
        user.rights.set_all(true);
        user.keys.set_all(true);
        user.channels.is_all = true;
        user
    }

    /// Whether the user needs no login.
    pub fn is_open(&self) -> bool {
        self.is_on && self.has_no_password
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn has_no_password(&self) -> bool {
        self.has_no_password
    }

    /// Whether the user may run every command on all keys and channels.
    pub fn may_do_everything(&self) -> bool {
        self.rights.is_everything() && self.keys.is_all() && self.channels.is_all
    }

    /// Whether this is one of the user's passwords. All passwords are compared, so that the time
    /// reveals nothing.
    pub fn has_password(&self, hashed: &PasswordHash) -> bool {
        self.passwords.iter().fold(false, |found, known| found | (known == hashed))
    }

    /// Applies one rule. If it is invalid, returns the reason and changes nothing.
    pub fn apply(&mut self, rule: &[u8], sha256: Sha256<'_>) -> Result<(), RuleError> {
        let word = rule.to_ascii_lowercase();
        match word.as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => (self.has_no_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.has_no_password, self.passwords) = (false, Vec::new()),
            b"reset" => *self = Self::new(&self.name),
            b"allcommands" => self.rights.set_all(true),
            b"nocommands" => self.rights.set_all(false),
            b"allkeys" => self.keys.set_all(true),
            b"resetkeys" => self.keys.set_all(false),
            b"allchannels" => self.channels = Channels { is_all: true, patterns: Vec::new() },
            b"resetchannels" => self.channels = Channels::default(),
            // Accepted without effect: RESTORE always checks its payload, and there are no
            // selectors.
            b"sanitize-payload" | b"skip-sanitize-payload" | b"clearselectors" => (),
            _ => return self.apply_prefixed(rule, sha256),
        }
        Ok(())
    }

    fn apply_prefixed(&mut self, rule: &[u8], sha256: Sha256<'_>) -> Result<(), RuleError> {
        let (first, rest) = rule.split_first().ok_or(RuleError::Syntax)?;
        match first {
            b'>' => self.add_password(PasswordHash::new(sha256(rest))),
            b'#' => self.add_password(PasswordHash::parse(rest).ok_or(RuleError::NoHash)?),
            b'<' => self.remove_password(PasswordHash::new(sha256(rest))),
            b'!' => self.remove_password(PasswordHash::parse(rest).ok_or(RuleError::NoHash)?),
            b'~' => self.add_keys(Access::BOTH, rest),
            b'%' => {
                let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
                let may = Access::of_letters(&rest[..tilde]).ok_or(RuleError::Syntax)?;
                self.add_keys(may, &rest[tilde + 1..])
            }
            b'&' => self.add_channel(rest),
            b'+' | b'-' => {
                let is_known = self.rights.apply(*first == b'+', rest);
                if is_known { Ok(()) } else { Err(RuleError::UnknownCommand) }
            }
            b'(' => Err(RuleError::Selector),
            _ => Err(RuleError::Syntax),
        }
    }

    fn add_password(&mut self, hashed: PasswordHash) -> Result<(), RuleError> {
        if !self.has_password(&hashed) {
            if self.passwords.len() == PASSWORDS_MAX {
                return Err(RuleError::Syntax);
            }
            self.passwords.push(hashed);
        }
        self.has_no_password = false;
        Ok(())
    }

    fn remove_password(&mut self, hashed: PasswordHash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| *known == hashed);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    fn add_keys(&mut self, may: Access, pattern: &[u8]) -> Result<(), RuleError> {
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if self.keys.add(may, pattern) { Ok(()) } else { Err(RuleError::AllKeys) }
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        match (pattern, self.channels.is_all) {
            (b"*", _) => self.channels = Channels { is_all: true, patterns: Vec::new() },
            (_, true) => return Err(RuleError::AllChannels),
            (pattern, false) if !self.channels.patterns.iter().any(|known| known == pattern) => {
                self.channels.patterns.push(pattern.to_vec());
            }
            _ => (),
        }
        Ok(())
    }

    /// Checks whether the user may run the subject with this number on these keys. `has_get`: GET
    /// is one of the options.
    pub fn check<'a>(
        &self,
        subject: usize,
        keys: impl Iterator<Item = &'a [u8]>,
        has_get: bool,
    ) -> Result<(), Refusal<'a>> {
        let (number, subject) = (subject, &SUBJECTS[subject]);
        if !self.rights.allows(number) && !subject.needs_no_login {
            return Err(Refusal::Command(subject));
        }
        let needed = Access::needed(subject.access, has_get);
        let mut keys = keys.filter(|key| !self.keys.allow(key, needed));
        keys.next().map_or(Ok(()), |key| Err(Refusal::Key(key)))
    }

    /// Whether the user may use a channel, or subscribe to a pattern. A pattern must be literally
    /// equal to one of the user's own.
    pub fn may_use_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let covers = |own: &Vec<u8>| if is_pattern { own == name } else { glob::matches(own, name) };
        self.channels.is_all || self.channels.patterns.iter().any(covers)
    }

    /// The flags: `on` or `off`, and `nopass` if set.
    pub fn flags(&self) -> impl ExactSizeIterator<Item = &'static str> {
        let flags = [if self.is_on { "on" } else { "off" }, "nopass"];
        flags.into_iter().take(1 + usize::from(self.has_no_password))
    }

    /// The hashes of the user's passwords, in hexadecimal.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(PasswordHash::hex)
    }

    pub fn commands(&self) -> String {
        self.rights.describe()
    }

    pub fn keys(&self) -> Vec<u8> {
        self.keys.describe()
    }

    pub fn channels(&self) -> Vec<u8> {
        let rules = self.channels.patterns.iter().map(|pattern| [b"&", pattern.as_slice()].concat());
        if self.channels.is_all { b"&*".to_vec() } else { rules.collect::<Vec<_>>().join(&b' ') }
    }

    /// The user's line in an ACL file.
    pub fn describe(&self) -> Vec<u8> {
        let flags = self.flags().map(|flag| flag.as_bytes().to_vec());
        let passwords = self.passwords().map(|digits| format!("#{digits}").into_bytes());
        let no_others = (!self.channels.is_all).then(|| b"resetchannels".to_vec());
        let mut words = vec![b"user".to_vec(), self.name.clone()];
        words.extend(flags.chain(passwords).chain([self.keys()]).chain(no_others));
        words.extend([self.channels(), self.commands().into_bytes()]);
        words.retain(|word| !word.is_empty());
        words.join(&b' ')
    }
}

/// Whether the word contains blanks or zero bytes, which an ACL file cannot represent.
pub(super) fn has_blanks(word: &[u8]) -> bool {
    word.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;

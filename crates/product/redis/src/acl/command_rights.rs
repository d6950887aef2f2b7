//! Which commands a user may run: rules such as `+@read`, `-keys` or `+config|get`. Later rules win.

use crate::categories::Categories;
use crate::command::Subject;
use crate::table::SUBJECTS;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// A set of subjects, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bits([u64; WORDS]);

const WORDS: usize = SUBJECTS.len().div_ceil(u64::BITS as usize);

const EVERYTHING: Bits = {
    let (mut words, mut place) = ([0; WORDS], 0);
    while place < SUBJECTS.len() {
        words[place / 64] |= 1 << (place % 64);
        place += 1;
    }
    Bits(words)
};

impl Bits {
    /// The subjects for which `is_it` holds.
    fn of(is_it: impl Fn(&Subject) -> bool) -> Self {
        let mut bits = Self::default();
        for (place, subject) in SUBJECTS.iter().enumerate() {
            bits.0[place / 64] |= u64::from(is_it(subject)) << (place % 64);
        }
        bits
    }

    fn has(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    /// Adds others to the set (`are_in`), or removes them.
    fn with(mut self, others: Self, are_in: bool) -> Self {
        let pairs = self.0.iter_mut().zip(others.0);
        pairs.for_each(|(word, other)| *word = if are_in { *word | other } else { *word & !other });
        self
    }
}

/// The rules on commands, and the subjects that they allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandRights {
    allowed: Bits,
    /// Whether everything is allowed before the first rule, or nothing.
    starts_with_all: bool,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    allows: bool,
    /// A command, a subcommand, or a category after `@`; in lower case.
    what: String,
}

/// The subjects that a rule is about; `None` if it names nothing known.
fn covered(what: &str) -> Option<Bits> {
    if let Some(category) = what.strip_prefix('@') {
        let category = Categories::named(category.as_bytes())?;
        return Some(Bits::of(|subject| subject.categories.overlaps(category)));
    }
    let command = &SUBJECTS[Subject::find(what.as_bytes())?];
    Some(Bits::of(|subject| subject.name == command.name || subject.is_of(command)))
}

impl CommandRights {
    pub(super) fn set_all(&mut self, allows: bool) {
        let allowed = if allows { EVERYTHING } else { Bits::default() };
        *self = Self { allowed, starts_with_all: allows, rules: Vec::new() };
    }

    /// Applies a rule, given without its sign. Returns false if there is no such command or
    /// category.
    pub(super) fn apply(&mut self, allows: bool, what: &[u8]) -> bool {
        let what = String::from_utf8_lossy(what).to_ascii_lowercase();
        if what == "@all" {
            self.set_all(allows);
            return true;
        }
        let Some(bits) = covered(&what) else { return false };
        self.allowed = self.allowed.with(bits, allows);
        // Earlier rules on the same subject or on its subcommands no longer have an effect.
        let is_part = |rule: &Rule| {
            rule.what.strip_prefix(&what).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|rule| !is_part(rule));
        self.rules.push(Rule { allows, what });
        true
    }

    /// Whether the user may run the subject with this number.
    pub(super) fn allows(&self, subject: usize) -> bool {
        self.allowed.has(subject)
    }

    pub(super) fn is_everything(&self) -> bool {
        self.allowed == EVERYTHING
    }

    /// The rules as text, from which the same rights can be parsed.
    pub(super) fn describe(&self) -> String {
        let mut text = String::from(if self.starts_with_all { "+@all" } else { "-@all" });
        for Rule { allows, what } in &self.rules {
            let sign = if *allows { '+' } else { '-' };
            write!(text, " {sign}{what}").expect("writing to a string cannot fail");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(rules: &str) -> CommandRights {
        let mut rights = CommandRights::default();
        for rule in rules.split_whitespace() {
            assert!(rights.apply(rule.starts_with('+'), &rule.as_bytes()[1..]), "{rule}");
        }
        rights
    }

    #[test]
    fn later_rules_win() {
        for (rules, allowed, refused) in [
            ("+get", "get", "set mget config"),
            ("+@all", "get set config config|get acl|load", ""),
            ("+@all -@dangerous", "get scan config acl acl|whoami", "keys info config|get acl|load"),
            ("+@read -mget", "get ttl keys scan", "mget set auth"),
            ("-mget +@read", "mget", "set"),
            ("+config|get", "config|get", "config acl|list"),
            ("+config -config|get", "config", "config|get"),
            ("+acl -@admin", "acl|whoami acl|cat", "acl|list"),
            ("+@ALL -SET", "get", "set"),
        ] {
            let rights = rights(rules);
            let may = |name: &str| rights.allows(Subject::find(name.as_bytes()).unwrap());
            allowed.split_whitespace().for_each(|name| assert!(may(name), "{rules}: {name}"));
            refused.split_whitespace().for_each(|name| assert!(!may(name), "{rules}: {name}"));
            assert_eq!(super::tests::rights(&rights.describe()), rights, "{rules}");
        }
        assert!(rights("+@all -get +get").is_everything() && !rights("+@all -get").is_everything());
    }

    #[test]
    fn rules_without_effect_are_not_shown() {
        for (rules, shown) in [
            ("", "-@all"),
            ("+get -get +get", "-@all +get"),
            ("+config|get +config", "-@all +config"),
            ("+config +config|get", "-@all +config +config|get"),
            ("+get +@all", "+@all"),
            ("+getex +get", "-@all +getex +get"),
        ] {
            assert_eq!(rights(rules).describe(), shown, "{rules}");
        }
    }

    #[test]
    fn unknown_rules_are_refused_and_change_nothing() {
        let mut rights = rights("+get");
        for what in ["", "@", "@nope", "nope", "config|nope", "get|key", "@all|x"] {
            assert!(!rights.apply(true, what.as_bytes()), "{what}");
        }
        assert_eq!(rights.describe(), "-@all +get");
    }
}

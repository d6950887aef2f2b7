//! Categories of commands, as in Redis.

/// In the order in which Redis lists them. Some have no command here.
const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A set of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Categories(u32);

impl Categories {
    pub(crate) const KEYSPACE: Self = Self(1);
    pub(crate) const READ: Self = Self(1 << 1);
    pub(crate) const WRITE: Self = Self(1 << 2);
    pub(crate) const HASH: Self = Self(1 << 6);
    pub(crate) const STRING: Self = Self(1 << 7);
    pub(crate) const BITMAP: Self = Self(1 << 8);
    pub(crate) const PUBSUB: Self = Self(1 << 12);
    pub(crate) const ADMIN: Self = Self(1 << 13);
    pub(crate) const FAST: Self = Self(1 << 14);
    pub(crate) const SLOW: Self = Self(1 << 15);
    pub(crate) const DANGEROUS: Self = Self(1 << 17);
    pub(crate) const CONNECTION: Self = Self(1 << 18);
    pub(crate) const TRANSACTION: Self = Self(1 << 19);
    pub(crate) const SCRIPTING: Self = Self(1 << 20);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The one of this name, in capitals or not.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let place = NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Self(1 << place))
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        NAMES.into_iter().enumerate().filter(move |(place, _)| self.0 & 1 << place != 0).map(|(_, name)| name)
    }

    /// All of them.
    pub(crate) const ALL: Self = Self((1 << NAMES.len()) - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_name() {
        for (name, category) in [
            ("keyspace", Categories::KEYSPACE),
            ("read", Categories::READ),
            ("WRITE", Categories::WRITE),
            ("string", Categories::STRING),
            ("admin", Categories::ADMIN),
            ("fast", Categories::FAST),
            ("slow", Categories::SLOW),
            ("dangerous", Categories::DANGEROUS),
            ("connection", Categories::CONNECTION),
            ("transaction", Categories::TRANSACTION),
            ("scripting", Categories::SCRIPTING),
        ] {
            assert_eq!(Categories::named(name.as_bytes()), Some(category), "{name}");
            assert!(category.names().eq([name.to_ascii_lowercase().as_str()]));
        }
        assert_eq!(Categories::named(b"all"), None);
        assert_eq!(Categories::ALL.names().count(), NAMES.len());
        assert!(Categories::READ.and(Categories::FAST).names().eq(["read", "fast"]));
    }
}

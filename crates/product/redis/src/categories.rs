//! ACL categories of commands, the same as in Redis.

/// In the order in which Redis lists them. Some categories contain no command here.
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

/// A set of categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(u32);

impl Categories {
    pub const KEYSPACE: Self = Self(1);
    pub const READ: Self = Self(1 << 1);
    pub const WRITE: Self = Self(1 << 2);
    pub const HASH: Self = Self(1 << 6);
    pub const STRING: Self = Self(1 << 7);
    pub const BITMAP: Self = Self(1 << 8);
    pub const PUBSUB: Self = Self(1 << 12);
    pub const ADMIN: Self = Self(1 << 13);
    pub const FAST: Self = Self(1 << 14);
    pub const SLOW: Self = Self(1 << 15);
    pub const DANGEROUS: Self = Self(1 << 17);
    pub const CONNECTION: Self = Self(1 << 18);
    pub const TRANSACTION: Self = Self(1 << 19);
    pub const SCRIPTING: Self = Self(1 << 20);

    pub const fn of(all: &[Self]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < all.len() {
            bits |= all[at].0;
            at += 1;
        }
        Self(bits)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The category with this name, in upper or lower case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let place = NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Self(1 << place))
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        NAMES.into_iter().enumerate().filter(move |(place, _)| self.0 & 1 << place != 0).map(|(_, name)| name)
    }

    /// All categories.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_its_name() {
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
        assert!(Categories::of(&[Categories::READ, Categories::FAST]).names().eq(["read", "fast"]));
    }
}

//! The form of a stored value: how its bytes are to be interpreted.

use crate::DecodeError;
use crate::bytes::{Reader, in_range};
use crate::codec::Codec;
use crate::declare::code;
use crate::hash;
use crate::large::Reference;
use crate::limits::{HASH_BYTES_MAX, LONG_VALUE_BYTES_MAX, small_value_bytes_max};

code! {
    /// Interpretation of a value's bytes; stored and sent next to them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Form {
        /// Plain: the value itself.
        #[default]
        Plain = 0,
        /// The [`Reference`] of a large value.
        Large = 1,
        /// The [`Field`](crate::hash::Field)s of a hash.
        Hash = 2,
        /// The value itself, too long for a datagram next to its key: it is sent in several
        /// ([`crate::fragment`]).
        Long = 3,
    }
}

impl Form {
    /// The form with this number.
    pub fn decode(number: u8) -> Result<Self, DecodeError> {
        Self::read("form", &number, &mut Reader::new(&[]))
    }

    /// Form of a value that clients set.
    pub fn of_set(is_large: bool) -> Self {
        if is_large { Self::Large } else { Self::Plain }
    }

    /// Form of a value of this length, not large, next to a key of this length.
    pub fn of_length(key_bytes: usize, value_bytes: usize) -> Self {
        if value_bytes <= small_value_bytes_max(key_bytes) { Self::Plain } else { Self::Long }
    }

    /// Form as clients see it next to a complete value: hash or plain.
    pub fn told(self) -> Self {
        if self == Self::Hash { Self::Hash } else { Self::Plain }
    }

    /// Checks that the bytes are valid in this form.
    pub(crate) fn check(self, value: Option<&[u8]>) -> Result<(), DecodeError> {
        match (self, value) {
            (Self::Plain, _) => Ok(()),
            (_, None) => Err(DecodeError::UnknownValue { field: "form", value: self as u64 }),
            (Self::Large, Some(value)) => Reference::decode(value).map(|_| ()),
            (Self::Hash, Some(value)) => hash::check(value),
            (Self::Long, Some(_)) => Ok(()),
        }
    }

    /// Checks that the value fits its key: plain if and only if a datagram has room for both.
    pub fn check_beside(self, key_bytes: usize, value: Option<&[u8]>) -> Result<(), DecodeError> {
        self.check(value)?;
        let (value, small_max) = (value.unwrap_or_default(), small_value_bytes_max(key_bytes));
        let range = match self {
            Self::Plain => in_range("value", value.len(), 0, small_max),
            Self::Hash => in_range("hash", value.len(), 0, HASH_BYTES_MAX),
            Self::Long => in_range("value", value.len(), small_max + 1, LONG_VALUE_BYTES_MAX),
            Self::Large => return Reference::checked(value).check_length(small_max),
        };
        range.map(|_| ())
    }
}

//! What the bytes of a value are.

use crate::DecodeError;
use crate::bytes::{Reader, in_range};
use crate::codec::Codec;
use crate::declare::code;
use crate::hash;
use crate::large::Reference;
use crate::limits::{HASH_BYTES_MAX, LONG_VALUE_BYTES_MAX, small_value_bytes_max};

code! {
    /// Stands beside the bytes of a value, wherever these stand, and says what they are.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Form {
        /// The value.
        #[default]
        Plain = 0,
        /// The [`Reference`] of a large value.
        Large = 1,
        /// The [`Field`](crate::hash::Field)s of a hash.
        Hash = 2,
        /// The value, for which no datagram has room beside its key: a message of several has ([`crate::fragment`]).
        Long = 3,
    }
}

impl Form {
    /// The form with this number.
    pub fn decode(number: u8) -> Result<Self, DecodeError> {
        Self::read("form", &number, &mut Reader::new(&[]))
    }

    /// Of a value that clients set.
    pub fn of_set(is_large: bool) -> Self {
        if is_large { Self::Large } else { Self::Plain }
    }

    /// Of a value of so many bytes that is not large, beside a key of so many.
    pub fn of_length(key_bytes: usize, value_bytes: usize) -> Self {
        if value_bytes <= small_value_bytes_max(key_bytes) { Self::Plain } else { Self::Long }
    }

    /// As clients are told it beside all of the value: whether that is a hash, or itself.
    pub fn told(self) -> Self {
        if self == Self::Hash { Self::Hash } else { Self::Plain }
    }

    /// Whether the bytes may stand here: where they say more than themselves, they are just that.
    pub(crate) fn check(self, value: Option<&[u8]>) -> Result<(), DecodeError> {
        match (self, value) {
            (Self::Plain, _) => Ok(()),
            (_, None) => Err(DecodeError::UnknownValue { field: "form", value: self as u64 }),
            (Self::Large, Some(value)) => Reference::decode(value).map(|_| ()),
            (Self::Hash, Some(value)) => hash::check(value),
            (Self::Long, Some(_)) => Ok(()),
        }
    }

    /// Whether a key of so many bytes can have the value. It is plain if a datagram has room for it beside its key, and never if not.
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

//! The answer of a node to a client.

use crate::codec::OptionalResult;
use crate::declare::{codec_of, layout, message};
use crate::large::Reference;
use crate::{DecodeError, Form, OpId, Status};

message! {
    /// The answer to a [`Get`](crate::Get) or an [`Update`](crate::Update).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reply<'a>: Reply where is_possible {
        header {
            /// Op of the request.
            op: OpId,
        }
        body {
            /// Outcome.
            status: Status,
            /// The value read; after an update with `return_old` the old value; after a float
            /// increment the new one.
            value: Option<&'a [u8]> as OptionalResult,
            /// Form of the value.
            form: Form => 3 zeros,
            /// Version of the value read, or of the current value after an update; [`OpId::NONE`]
            /// if the key is absent.
            version: OpId,
            /// Expiry time of that value in milliseconds of the Unix epoch; 0: never.
            expiry_ms: u64,
            /// The integer after an increment, or the length after an append. After a get from a
            /// node whose kernel answers gets, the length of this reply: a get padded to this
            /// length may be answered by the kernel (G8) or a switch (H9). After a get of a large
            /// value, the token for [`ReadChunks`](crate::large::ReadChunks).
            integer: i64,
        }
    }
}

impl Reply<'_> {
    /// Length of the encoded datagram, in bytes.
    pub fn length(&self) -> usize {
        Self::FIXED_BYTES + self.value.map_or(0, <[u8]>::len)
    }

    /// A reply without a value.
    pub fn bare(op: OpId, status: Status) -> Self {
        Self { op, status, version: OpId::NONE, expiry_ms: 0, integer: 0, value: None, form: Form::Plain }
    }

    /// The large value that it refers to.
    pub fn large(&self) -> Option<Reference> {
        let reference = self.value.filter(|_| self.form == Form::Large)?;
        Some(Reference::checked(reference))
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        self.form.check(self.value)
    }
}

//! What a node answers to a client.

use crate::codec::OptionalResult;
use crate::declare::{codec_of, layout, message};
use crate::large::Reference;
use crate::{DecodeError, Form, OpId, Status};

message! {
    /// The answer to a [`Get`](crate::Get) or an [`Update`](crate::Update).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reply<'a>: Reply where is_possible {
        header {
            /// The op that is answered.
            op: OpId,
        }
        body {
            /// What happened.
            status: Status,
            /// The value read; after an update with `return_old` the value from before; after a float increment the new one.
            value: Option<&'a [u8]> as OptionalResult,
            /// What that is.
            form: Form => 3 zeros,
            /// The version that the reply speaks of: of the value read, or now current after an update; [`OpId::NONE`] if absent.
            version: OpId,
            /// When that value expires, in milliseconds of the Unix epoch; 0 is never.
            expiry_ms: u64,
            /// The integer after an increment, the length after an append; after a get of a node whose kernel answers some, the length of this reply:
            /// a get that is as long may be answered there (G8), or by a switch (H9). Of a large value that was got: a token for [`ReadChunks`](crate::large::ReadChunks).
            integer: i64,
        }
    }
}

impl Reply<'_> {
    /// Of the encoded datagram, in bytes.
    pub fn length(&self) -> usize {
        Self::FIXED_BYTES + self.value.map_or(0, <[u8]>::len)
    }

    /// A reply without a value.
    pub fn bare(op: OpId, status: Status) -> Self {
        Self { op, status, version: OpId::NONE, expiry_ms: 0, integer: 0, value: None, form: Form::Plain }
    }

    /// The large value that it names.
    pub fn large(&self) -> Option<Reference> {
        let reference = self.value.filter(|_| self.form == Form::Large)?;
        Some(Reference::checked(reference))
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        self.form.check(self.value)
    }
}

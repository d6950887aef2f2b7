//! What a node answers to a client.

use crate::bytes::Reader;
use crate::codec::{Codec, OptionalResult};
use crate::declare::{code, codec_of, layout, message};
use crate::large::Reference;
use crate::{DecodeError, Form, OpId};

code! {
    /// The outcome of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Status {
        /// A get found the key; an update was applied.
        Ok = 0,
        /// The key has no value; an update that needs one was not applied.
        NotFound = 1,
        /// The update's condition did not hold; it was not applied.
        ConditionFailed = 2,
        /// The value is not a decimal 64-bit integer.
        NotAnInteger = 3,
        /// The value is not a decimal number.
        NotAFloat = 4,
        /// The sum is outside the range of its type.
        Overflow = 5,
        /// The result would be longer than the limit.
        ValueTooLong = 6,
        /// The op is older than what replicas remember of its client (R10): whether it took effect is not known.
        Expired = 7,
        /// A bound of the replicas is reached; nothing was stored; try again later.
        Busy = 8,
        /// A replica's disk is full; nothing was stored.
        DiskFull = 9,
        /// The request is well-formed but asks for what this node does not have (a keyspace that does not exist).
        NoSuchKeyspace = 10,
        /// The keyspace has names of objects, and the update no stamp, or one that the partition's round is beyond (P8): it was not applied. Whoever has put the chunks is to
        /// confirm them again.
        StaleStamp = 11,
        /// The keys of a transaction are not all of one partition; it was not applied.
        CrossPartition = 12,
        /// The operation is not one of values of this [`Form`], whatever its condition, or its client wants to be told a hash from before; it was not applied.
        WrongType = 13,
        /// Evaluating the op has ended a node's process twice, so it was decided without being evaluated; it was not applied.
        EndedByStore = 14,
    }
}

impl Status {
    /// The status with this number.
    pub fn decode(value: u8) -> Result<Self, DecodeError> {
        Self::read("status", &value, &mut Reader::new(&[]))
    }
}

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

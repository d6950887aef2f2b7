//! Outcome of a request.

use crate::DecodeError;
use crate::bytes::Reader;
use crate::codec::Codec;
use crate::declare::code;

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

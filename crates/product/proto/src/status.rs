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
        /// The request is valid, but the node does not have its keyspace.
        NoSuchKeyspace = 10,
        /// The keyspace holds object names, and the update has no stamp, or one that the
        /// partition's round has passed (P8): it was not applied. The client must confirm the
        /// chunks again.
        StaleStamp = 11,
        /// The keys of a transaction belong to different partitions; it was not applied.
        CrossPartition = 12,
        /// The operation does not apply to values of this [`Form`], or the client asked for the old
        /// value of a hash; it was not applied.
        WrongType = 13,
        /// Evaluating the op has crashed a node's process twice, so it was decided without
        /// evaluation; it was not applied.
        EndedByStore = 14,
    }
}

impl Status {
    /// The status with this number.
    pub fn decode(value: u8) -> Result<Self, DecodeError> {
        Self::read("status", &value, &mut Reader::new(&[]))
    }
}

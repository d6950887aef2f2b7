//! Bugs that tests plant, to see that they are found.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// G1: an entry stays open when an op locks its key.
    LockIgnored,
    /// G1: an entry that makes room for another key's stays open meanwhile.
    EvictedOpen,
    /// G2: the version is not looked at again.
    VersionReadOnce,
    /// G3: the lease is not looked at.
    LeaseUnchecked,
    /// G3: what is void stays open, and its lease in force.
    VoidKept,
    /// G4: the digest stands for the key.
    KeyUnchecked,
    /// G5: values that expire are answered.
    ExpiringShown,
    /// G6: the program goes on when its process has ended.
    OutlivesProcess,
    /// G7: what it answers is not counted.
    HitsUncounted,
    /// G8: the reply may be longer than the get.
    RoomIgnored,
    /// H6: an entry answers gets of any instance, and of none.
    InstanceUnchecked,
    /// H6: a copy answers gets that were stamped with a later number.
    StampUnchecked,
    /// H7: a lease is of all copies of the owner, whatever their serial.
    SerialIgnored,
}

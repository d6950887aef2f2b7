//! Bugs that tests plant, to see that they are found. Outside of tests there are none.

/// A rule that an agent breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "exploration", feature = "fixtures")),
    allow(dead_code, unreachable_pub, reason = "only tests plant")
)]
pub enum Plant {
    /// R6: tables are acknowledged at once, and installed when the next request comes.
    AckBeforeInstalled,
    /// R13: requests of older terms are carried out.
    OlderTermObeyed,
    /// R12: a switch that starts again goes on by the tables that it had. Planted where the switch is started.
    TablesSurviveRestart,
    /// What came by a trunk goes back by it, too.
    TrunkEchoes,
    /// The last value of a record is not its.
    RecordEndsEarly,
    /// A record is found by the vnode of the address, and not by the header.
    RecordOfAddress,
    /// C11: a piece of a scan that comes by a trunk is cut again.
    PiecesCutAgain,
    /// C5: what a client wrote into the room for a chain header stays.
    ChainHeaderBelieved,
    /// H1: a new entry redirects before anybody has confirmed a copy.
    HotEntryStartsOpen,
    /// H2: a stamp that a client wrote stays where the key has no hot entry.
    StampBelieved,
    /// H2: updates that pass are not counted.
    SeenNotCounted,
    /// H4: a close is answered with what was seen before.
    CloseNotCounted,
    /// H4: a close of what is not installed yet is answered as if it had gone.
    UnknownInstanceGone,
    /// H1: an instance is installed that was there before.
    InstanceReused,
    /// H9: a value is shown whatever was counted since.
    HotValueStaleShown,
    /// H9: a value is shown for every key of its digest.
    HotValueKeyUnchecked,
    /// H9: a value is shown without a lease.
    HotValueLeaseUnchecked,
}

//! Bugs that tests plant, to see that they are found. Outside of tests there are none.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "exploration")),
    allow(dead_code, unreachable_pub, reason = "only tests plant")
)]
pub enum Plant {
    /// P3: a target says that it holds a chunk when all frames have come, before any of it is forced.
    AckBeforeForce,
    /// P1: a target stores what comes, whatever it is. (The disk's bug: the simulator's disk has it.)
    UnverifiedStored,
    /// P1: a reader takes what comes.
    UnverifiedRead,
    /// P2: what was acknowledged by an older map counts with what is acknowledged by the newer one.
    AcksOfTwoMaps,
    /// P6, P7: what is held already is confirmed with the round's stamp, but keeps its old one.
    ConfirmedWithoutStamp,
    /// P6: what another initiator is still sending counts as held.
    ArrivingCounted,
    /// P8: after a restart everything has the stamp of no round.
    RestartForgetsStamps,
    /// P10: a chunk is "not found" as soon as one target says so.
    NotFoundByOne,
    /// P5: an accept is obeyed though its bid has lapsed.
    LapsedAccepted,
    /// P5: what lapses keeps its memory and its disk.
    LapsedKept,
    /// P9: the stamp that is told of a put is the highest of its targets', not the lowest.
    HighestStamp,
    /// P12: a copy is dropped when as many others as are wanted hold the chunk, whoever they are.
    SurplusByCount,
    /// P12: it is dropped when better-ranked targets say that they hold the chunk, though they have not confirmed it.
    SurplusUnconfirmed,
    /// P13: a chunk is "not found" when the members of its group say so, though its slot moves.
    FormerNotAsked,
    /// P13: who is of a chunk's group no more drops it before the new one has it.
    FormerDropsEarly,
    /// P13: a target says that all has moved before that is so.
    MovedTooEarly,
    /// P13: who is of a chunk's group no more counts its own copy with those of the new one.
    FormerCounted,
}

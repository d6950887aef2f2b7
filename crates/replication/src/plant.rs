//! Bugs that tests plant, to see that they are found. Outside of tests there are none.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exploration"), allow(dead_code, unreachable_pub, reason = "only tests plant"))]
pub enum Plant {
    /// R1: a decision waits for one ack only, the primary's own included.
    DecideBeforeAllAcks,
    /// R2: no decision is contended.
    IgnoreContention,
    /// R2: a contended decision takes effect at the primary at once.
    ShowContendedEarly,
    /// R3: a new primary forgets its undecided ops.
    RecoveryAborts,
    /// R3: a new primary does not ask for decisions that it lacks.
    AdoptNothing,
    /// R4: a new primary answers gets of locked keys at once.
    GetDuringRecovery,
    /// *Get*: a secondary answers although the key is locked.
    StaleGetAtLockedSecondary,
    /// A prepare is acknowledged before it is forced.
    AckBeforeForce,
}

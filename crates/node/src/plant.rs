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
    /// R1, R2: a prepare is acknowledged before it is forced.
    AckBeforeForce,
    /// R1, R4: acks of the epoch before still count.
    CountOlderAcks,
    /// R2: a contended decision is acknowledged before it is forced.
    ContendedNotForced,
    /// R4: decisions that came before their turn are taken into the next epoch.
    EarlyDecisionsKept,
    /// R4: messages of other epochs are heard.
    EpochUnchecked,
    /// R5: a put's version is its place in the order instead of its op id.
    VersionIsTimestamp,
    /// R7: a joiner keeps what it logged after its last common decision.
    JoinerKeepsFormerLife,
    /// R7: deletions leave nothing behind for members that are away.
    TombstoneDroppedEarly,
    /// R7: what was written is not noted if its key was written a while before.
    OverwriteNotNoted,
    /// R7: a joiner is served, and so may become consistent, before recovery is complete.
    CopyDuringRecovery,
    /// R8: a handoff keeps what is in its space from another time.
    HandoffNotEmptied,
    /// R7: a node that becomes an original keeps what it holds from another time.
    FormerMoveKept,
    /// R8: a handoff says of what it lacks that it does not exist.
    HandoffDeniesMissing,
    /// R8: who has left the epoch answers gets that came before.
    AnswerAfterLeaving,
    /// R9: a process answers gets before it is admitted.
    AnswerUnadmitted,
    /// R18: a restarted process answers gets before it is known that its disk has forgotten nothing.
    RestartedAnswersAtOnce,
    /// R18: a restarted primary decides before it has the open ops that only others hold.
    OpenOpsNotFetched,
    /// R18: a restarted member takes in new ops before it is proven.
    UnprovenTakesNewOps,
    /// R18: a primary goes on with a member that has forgotten what it had confirmed.
    ForgettingIgnored,
    /// R10: a new primary forgets the results of the ops before.
    DedupeForgottenAtFailover,
    /// R11: a value has expired when the replica's own clock says so.
    ExpiryByLocalClock,
    /// R1: a large value is whole when all its chunks have come, whatever they are. (The disk's bug: the simulator's disk has it.)
    ChecksumIgnored,
    /// R10: a client is told that nothing is stored when the primary has no room for a large value, though nothing is decided.
    NoRoomToldUndecided,
    /// R1: a secondary acknowledges an op whose large value it has not.
    PreparedWithoutValue,
    /// R14: a replica of a quorum counts though it has not the large value that it is to hold.
    StragglerCounted,
    /// L8: an op is decided when its value is made, before all members hold that.
    DecideBeforeMadeHeld,
    /// After a restart an op stays open whose large value did not survive.
    TornOpKept,
    /// *Scrub*: large values that nobody asks for are not read.
    ValuesUnread,
    /// R12: gets are answered without a lease.
    LeaseIgnored,
    /// R12: gets that come past the switches are answered as long as others.
    DirectLeaseIgnored,
    /// *Get*: nobody is told that a key is locked.
    LockNotTold,
    /// *Scrub*: what another member has is not compared with what is here.
    ScrubBlind,
    /// C11: a secondary lists what it holds, whatever may have been decided elsewhere.
    ScanAtSecondary,
    /// C11: a new primary lists what it holds before its recovery is complete.
    ScanDuringRecovery,
    /// C11, R17: a scan goes over match values that another partition has taken over.
    ScanBeyondReach,
    /// C11: a piece that was cut short says that nothing comes after it.
    ScanShort,
    /// P8: a name takes chunks that the round which it has adopted may collect.
    StaleStampTaken,
    /// R15: nobody acknowledges old ops again, nor sends them.
    OrphansIgnored,
    /// R16: what is held is discarded although the node has become a member again.
    DiscardNotBrokenOff,
    /// R17: a deletion is not written to the partition that is being formed.
    DeletionNotMirrored,
    /// R17: what is read of a partition for another one overwrites what was written meanwhile.
    FilledOverNewer,
    /// R17: what was formed stays when it is void.
    FormedNotCleared,
    /// R17: ops are taken in, and decided, in a sealed epoch as in any.
    SealedTakesOps,
    /// R17: a sealed partition is said to be drained while ops are open.
    DrainedTooEarly,
    /// R17: a partition is born without what its parents remember of clients.
    HeirForgetsClients,
    /// R17: gets go to the parent as long as there is one in the node.
    ParentAnswersAfterBirth,
    /// R17: an epoch of a partition that is no more, held up on its way, makes a member of an empty one.
    EndedParentRevived,
    /// R17: when a partition ends, its log does not say that its last decisions have taken effect.
    EndNotLogged,
    /// R17: a birth is acknowledged before it is forced.
    BirthNotForced,
    /// C1: an entry that comes after a gap is logged in the place of the missing one.
    ChainGapSkipped,
    /// C2: the tail releases what those before it have not forced.
    ForcedBeforeNotAwaited,
    /// C3: the head answers what it has decided.
    HeadAnswers,
    /// C4: nobody but the head remembers results.
    ResultsStayAtHead,
    /// C3: nobody is told of a full disk behind it.
    FullTailNotTold,
    /// C5: what a switch has written into a request is not looked at.
    ChainHeaderUnchecked,
    /// C6: what was sent to the successor is never sent again.
    NeverSentAgain,
    /// C7: a new tail answers before its epoch is activated.
    TailSpeaksEarly,
    /// C8: the tail releases what a joiner behind it has not forced.
    JoinerNotAwaited,
    /// H3: copies are made of what is not decided yet.
    HotCopyUndecided,
    /// R12: a member answers gets that a hot entry has sent to it as long as others.
    HotMemberUnfenced,
    /// H4: ops are decided whatever copies may be shown.
    HotEvidenceIgnored,
    /// H5: an epoch is acknowledged while copies may be shown.
    HotLeftOpen,
    /// H6: a holder answers from a copy of another instance.
    HotInstanceUnchecked,
    /// H6: a holder answers from a copy that is older than the stamp.
    HotStampUnchecked,
    /// H7: a holder answers without a lease of its owner.
    HotLeaseUnchecked,
    /// H7: a lease that has gone comes back by a pulse that was sent before.
    HotLeaseComesBack,
    /// H9: what the switch was granted is not waited for when copies are taken back.
    HotSwitchGrantForgotten,
    /// T1: others than the primary take the first effect of a transaction alone.
    TransactionHalfTaken,
    /// T1: a joiner has forgotten all effects of its former transactions but the first.
    TransactionFormerForgotten,
    /// T2: a transaction is decided when it is the next of its first key.
    TransactionNextAtFirst,
    /// T3: whether a transaction is contended its first key alone says.
    TransactionContendedAtFirst,
    /// T3: what is decided uncontended releases what was before it of its first key alone.
    TransactionReleasesFirst,
    /// T4: what a transaction requires is not looked at.
    TransactionRequirementUnread,
    /// A change of fields forgets all others of the hash.
    HashFieldsAlone,
    /// Others than the primary forget that a value is a hash.
    HashFormForgotten,
    /// T5: a script runs before its keys are read.
    ScriptKeysUnread,
    /// T5: a script knows the time when it runs, instead of when it was called.
    ScriptClockRead,
    /// T5: what a script has done before it failed takes effect.
    ScriptFailureKept,
    /// T6: an op that has ended this node twice is evaluated once more.
    OpMarksIgnored,
    /// M1: what is published again is told again.
    RepeatTold,
    /// M2: that nobody listens any more is not noted.
    LeftListenerKept,
    /// M2: of what one client says, what comes last counts.
    LateListenTaken,
    /// M3: a pattern is noted as a channel of that name.
    PatternIsChannel,
    /// M3: of those who listen at one address one is counted.
    ListenersOfAddressOne,
    /// R14: a version is acknowledged before it is forced.
    QuorumAckBeforeForce,
    /// R14: a new storage is counted before it has merged anything.
    NewcomerCountsAtOnce,
    /// R14: a damaged value is got back in the epoch in which the damage was found.
    QuorumRepairUnfenced,
    /// R14: one other member is enough to get a damaged value back.
    QuorumRepairFromOne,
    /// R14: a deletion is forgotten in the epoch in which all hold it.
    QuorumForgetUnfenced,
    /// R14: a deletion is forgotten whether or not all hold it.
    QuorumForgetUnheld,
    /// R14: a version that was written while its key was read, to be forgotten, is forgotten with it.
    QuorumForgottenUnseen,
    /// R14: a store is taken although it was asked for in an older epoch.
    QuorumOlderEpochTaken,
    /// R14: answers do not tell which deletions are forgotten.
    QuorumFloorNotTold,
    /// R14: a new storage does not learn which deletions are forgotten.
    QuorumFloorNotMerged,
    /// R14: who leaves tells what it holds before its successor holds it.
    QuorumNotEntrusted,
    /// R14: a successor answers before the epoch is activated in which it counts.
    QuorumSuccessorEarly,
    /// R14: a successor says that it has merged all when it has merged a part.
    QuorumMergeCutShort,
    /// R14: a newcomer keeps what it holds from another time.
    QuorumNewcomerNotEmptied,
}

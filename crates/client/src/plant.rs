//! Bugs that tests plant, to see that they are found. Outside of tests there are none.

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exploration"), allow(dead_code, unreachable_pub, reason = "only tests plant"))]
pub enum Plant {
    /// R10: a retry is a new op.
    RetryIsNewOp,
    /// R10: an update that is given up is said not to have happened.
    TimeoutIsFailure,
    /// R10: any reply answers the oldest op, not the one that it names.
    AnyReplyAnswers,
    /// Whatever is submitted is sent at once, however slow the replicas.
    NoWindow,
    /// C5: that a node refuses a request is taken for the end of it.
    RefusalIsFailure,
    /// R14: a get returns the newest version although fewer than k replicas hold it.
    NoWriteBack,
    /// R14: answers of different epochs are counted together.
    MixEpochs,
    /// R14: one answer is enough to choose a timestamp.
    AskOne,
    /// R14: a replica that answers twice counts twice.
    CountTwice,
    /// R14: a put that was cut off by a newer epoch is stored again whatever replicas say.
    StoreAgainUnasked,
    /// C11: what no piece of a scan covers, between those that have come, is taken for covered.
    ScanHolesForgotten,
    /// C11: what is behind the last piece that a switch makes of a scan is taken for covered.
    ScanLimitIsEnd,
    /// M1: one that comes again is told again.
    MessageHeardAgain,
    /// Of gets that share a request whose value is long, only one goes on.
    SharersForgotten,
}

/// The bug that a test has planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planted {
    #[cfg(feature = "exploration")]
    pub(crate) plant: Option<Plant>,
}

impl Planted {
    /// Whether it is this one.
    #[cfg(feature = "exploration")]
    pub(crate) fn has(self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// No.
    #[cfg(not(feature = "exploration"))]
    pub(crate) const fn has(self, _: Plant) -> bool {
        false
    }
}

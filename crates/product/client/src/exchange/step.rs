//! What an exchange and its driver tell each other.

use crate::OperationError;
use crate::request::Summary;
use nicekv_proto::OpId;

/// What an exchange wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More answers.
    Wait,
    /// Nothing: the datagram is of no use to it.
    Stray,
    /// Send the datagram once more.
    Resend,
    /// Send the datagram that it has written, as a round of its own.
    Send(Round),
    /// Start over with a new op id after a pause: under the present one nothing was stored, nor will be.
    RestartLater,
    /// Read the large value in [`Buffers::large`](super::Buffers::large), to which the answer refers.
    ReadLarge,
    /// Start over with a new op id at once: the large value that was being read is gone.
    RestartNow,
    /// End with the outcome unknown: the replicas have forgotten this client id (R10).
    ClientExpired,
    /// End.
    Done(Result<Summary, OperationError>),
}

/// What a datagram makes replicas do, which determines how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Look something up.
    Read,
    /// Store something durably.
    Write,
}

/// The op id of a try, and the watermark that it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) op: OpId,
    /// Every op with a smaller sequence number is finished.
    pub(crate) watermark: u64,
}

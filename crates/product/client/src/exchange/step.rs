//! The interface between an exchange and its driver.

use crate::OperationError;
use crate::request::Summary;
use nicekv_proto::OpId;

/// An exchange's next instruction for its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for more answers.
    Wait,
    /// Nothing: the exchange cannot use the datagram.
    Stray,
    /// Send the same datagram again.
    Resend,
    /// Send the datagram that the exchange has written, as a new round.
    Send(Round),
    /// Start over with a new op id after a pause: nothing was stored under the current one, or will
    /// be.
    RestartLater,
    /// Read the large value in [`Buffers::large`](super::Buffers::large), to which the answer refers.
    ReadLarge,
    /// Start over with a new op id at once: the large value that was being read is gone.
    RestartNow,
    /// End the request with the outcome unknown: the replicas have forgotten this client id (R10).
    ClientExpired,
    /// End the request with this result.
    Done(Result<Summary, OperationError>),
}

/// The work that a round gives to replicas, which determines how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// They look something up.
    Read,
    /// They store something durably.
    Write,
}

/// The op id of a try, and the watermark that it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) op: OpId,
    /// Every op with a smaller sequence number is finished.
    pub(crate) watermark: u64,
}

//! The result of reading from a stream.

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    pub(crate) next: Next,
}

/// Whether to read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Now: more may be available.
    Soon,
    /// After the next readiness event: nothing more is available.
    Later,
    /// Never: the peer has closed its side.
    Never,
}

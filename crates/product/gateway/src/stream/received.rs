//! What a read of a stream returns.

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    pub(crate) next: Next,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More may be available now.
    Soon,
    /// Nothing more is available; an event announces more.
    Later,
    /// The peer sends nothing more.
    Never,
}

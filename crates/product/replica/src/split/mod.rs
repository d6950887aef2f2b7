//! Splits and merges (R17). First the members form the children of a partition (`forming`, with its
//! state in `formations` and double writes in `mirrors`). Then one log record starts a child and
//! ends its parents (`takeover`).

pub(crate) mod formations;
pub(crate) mod forming;
pub(crate) mod mirrors;
pub(crate) mod takeover;
pub(crate) mod takeovers;

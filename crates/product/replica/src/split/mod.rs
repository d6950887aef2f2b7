//! Splits and merges (R17). Members form the children of a partition (`form`, with its state in
//! `formations` and double writes in `mirrors`). Then one record starts a child and ends its
//! parents (`birth`).

pub(crate) mod birth;
pub(crate) mod births;
pub(crate) mod form;
pub(crate) mod formations;
pub(crate) mod mirrors;

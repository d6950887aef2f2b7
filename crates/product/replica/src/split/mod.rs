//! Splits and merges (R17): members form the partitions that take another one's place (`form`, with its state in `formations` and
//! writes that go to both in `mirrors`), and then one record makes the child a partition and ends the parent (`birth`).

pub(crate) mod birth;
pub(crate) mod births;
pub(crate) mod form;
pub(crate) mod formations;
pub(crate) mod mirrors;

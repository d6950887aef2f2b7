//! Scenarios by feature: how random seeds use it, and runs shaped to reveal its bugs.
//!
//! `draw` adds a feature to the scenarios of some seeds. Each feature has its own random sequence,
//! so adding one does not change the others. The other functions shape a scenario for [planted
//! bugs](crate::plants).

pub(crate) mod chains;
pub(crate) mod coordination;
pub mod empty_keys;
pub(crate) mod full_partitions;
pub(crate) mod hashes;
pub(crate) mod headers_only;
pub mod hot_keys;
pub(crate) mod kernel_gets;
pub mod large_values;
pub mod long_keys;
pub(crate) mod membership;
pub(crate) mod metadata_faults;
pub(crate) mod migration;
pub(crate) mod object_names;
pub(crate) mod pubsub;
pub(crate) mod quorum;
pub(crate) mod reshaping;
pub(crate) mod switch_trees;
pub(crate) mod transactions;

//! The log, the values and the engines, on files that fail and on real ones.

mod common;
mod data_directory;
mod engine_damage;
mod engines;
mod group_commit;
mod log;
mod log_ahead;
mod log_damage;
mod log_figures;
mod log_manifest;
mod long_keys;
mod real_files;
mod values;
mod values_compaction;
mod values_damage;
mod values_large;
mod values_power_loss;

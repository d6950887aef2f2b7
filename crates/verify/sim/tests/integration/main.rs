//! Tests of the protocols in the simulator.

mod balancing;
mod chains;
mod command;
mod coordination;
mod disks;
mod documentation;
mod empty_keys;
mod enumeration;
mod exhaustive;
mod expiry;
mod forgotten;
mod hot;
mod large;
mod long_keys;
mod migration;
mod objects;
mod overload;
mod quorum;
mod quorum_damage;
mod quorum_deletions;
mod quorum_large;
mod quorum_places;
mod quorum_rows;
mod scenarios;
mod seeds;
mod transcripts;
mod trees;

/// The number of random runs that a test makes: a third of `all` in an ordinary test run, all of them in
/// `.ci/long`.
fn sampled(all: u64) -> u64 {
    runs(all.div_ceil(3), all)
}

/// The number of random runs in an ordinary test run, and in `.ci/long`.
fn runs(ordinary: u64, long: u64) -> u64 {
    if nicekv_testkit::runs_long() { long } else { ordinary }
}

//! Runs in which clients put values that are too long for a datagram.

use crate::cluster::Scenario;
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_proto::OpId;
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_testkit::Random;

const MILLISECOND_NS: u64 = 1_000_000;
/// Chooses the seeds in which some values are large.
const LARGE: u64 = 0x6c_6172_6765;
/// Chooses the rate of appends among the updates of such keys.
const APPENDS: u64 = 0x61_7070_656e_6473;
/// Chooses which long values are not large, but go in one message of several datagrams.
const WHOLE: u64 = 0x77_686f_6c65;
/// Chooses how many large values a client reads at a time.
const READS: u64 = 0x72_6561_6473;
/// Approximate bytes of the shortest and of the longest value: two chunks, and six.
const BYTES: (u64, u64) = (1_100, 8_000);

/// Rate of large values, per million sets.
pub(crate) fn drawn(seed: u64) -> u64 {
    let mut random = Random::new(seed ^ LARGE);
    if random.below(4) == 0 { 300_000 } else { 0 }
}

/// Maximum bytes of values that are sent in one message instead of as large values: none, the
/// shorter ones, or all.
pub(crate) fn whole_drawn(seed: u64) -> usize {
    Random::new(seed ^ WHOLE).pick(&[0, 3_000, LONG_VALUE_BYTES_MAX])
}

/// Rate of appends, per million updates of keys that may have large values.
pub(crate) fn appends_drawn(seed: u64) -> u64 {
    let mut random = Random::new(seed ^ APPENDS);
    if drawn(seed) == 0 { 0 } else { random.pick(&[0, 200_000, 500_000]) }
}

/// Large values that a client reads at a time; 0: unlimited.
pub(crate) fn reads_at_once_drawn(seed: u64) -> usize {
    if drawn(seed) == 0 { 0 } else { Random::new(seed ^ READS).pick(&[0, 1, 2]) }
}

/// The suffix of an append: a few bytes, almost as much as fits into a datagram, or more.
pub(crate) fn suffix(op: OpId, short: &[u8]) -> Vec<u8> {
    let bytes = match op.sequence % 4 {
        0 | 2 => 1_000,
        1 => 3_000,
        _ => short.len() + 1,
    };
    b"+".iter().chain(short).copied().cycle().take(bytes).collect()
}

/// A value that is longer than a datagram and unique to the op.
pub(crate) fn value(op: OpId, short: &[u8]) -> Vec<u8> {
    let bytes = BYTES.0 + op.sequence.wrapping_mul(2_741) % (BYTES.1 - BYTES.0);
    let mut value: Vec<u8> = short.iter().chain(b"/").copied().cycle().take(bytes as usize).collect();
    value.extend_from_slice(short);
    value
}

/// Few keys, all with large values; processes crash.
pub(crate) fn killed(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::of(0, nicekv_proto::KeyOrder::Hash, 3);
    (scenario.workload.large, scenario.workload.pause_ns_max) = (900_000, 10 * MILLISECOND_NS);
    scenario.workload.whole_bytes_max = 0;
    (scenario.clients, scenario.workload.calls) = (4, 150);
    scenario.faults = Faults { crash: 4_000, downtime_max_ns: 300 * MILLISECOND_NS, ..Faults::NONE };
}

/// The same as [`lost`], with a quorum of two of three replicas.
pub(crate) fn by_quorum(scenario: &mut Scenario) {
    lost(scenario);
    scenario.keyspaces = vec![Shape::quorum(3, 2)];
}

/// Many connections of a client request the same large values at once, and the client reads one of
/// these at a time.
pub fn shared(scenario: &mut Scenario) {
    killed(scenario);
    scenario.keyspaces = vec![Shape::quorum(3, 2), Shape::multicast(3, 0)];
    scenario.workload.keys = Key::of_all(4, &scenario.keyspaces);
    (scenario.workload.reads_at_once, scenario.workload.window) = (1, 8);
    (scenario.workload.gets, scenario.faults) = (600_000, Faults::NONE);
}

/// Some disks have no space for large values while others have.
pub fn without_room(scenario: &mut Scenario) {
    killed(scenario);
    scenario.faults = Faults { disk_full: 20_000, ..Faults::NONE };
}

/// Few keys; processes crash, and datagrams are lost.
pub(crate) fn lost(scenario: &mut Scenario) {
    killed(scenario);
    scenario.faults.loss = 50_000;
}

/// Few keys whose values grow by appends; processes crash.
pub fn appended(scenario: &mut Scenario) {
    killed(scenario);
    (scenario.workload.large, scenario.workload.appends) = (500_000, 700_000);
    // Appends of unknown outcome make a history hard to judge, so there are more keys.
    scenario.workload.keys = Key::of(0, nicekv_proto::KeyOrder::Hash, 8);
    (scenario.workload.calls, scenario.workload.timeout_ns) = (100, 4_000 * MILLISECOND_NS);
}

/// No crashes, but disks damage values.
pub(crate) fn damaged(scenario: &mut Scenario) {
    killed(scenario);
    scenario.faults = Faults { corruption: 2_000, ..Faults::NONE };
}

/// No crashes, but chunks are damaged in transit.
pub(crate) fn garbled(scenario: &mut Scenario) {
    killed(scenario);
    scenario.faults = Faults { garbled: 20_000, ..Faults::NONE };
}

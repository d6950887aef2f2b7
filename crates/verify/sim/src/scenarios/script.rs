//! A script of faults, and the cluster that it runs on.

use crate::client::{HURRY, Workload};
use crate::cluster::{Cluster, Fault, Scenario, Seen};
use crate::faults::{Faults, StoreFaults};
use crate::judge::{self, Report};
use crate::keyspace::{Key, Shape};
use crate::network::Pace;
use crate::trunks::Trunks;
use nicekv_client::Coordination;
use nicekv_metadata::Timing;
use nicekv_proto::{Duration, PartitionId};
use nicekv_testkit::Random;

pub(crate) const MILLISECOND_NS: u64 = 1_000_000;
/// If the point of a script has not come within this time, the script gives up.
const POINT_NS: u64 = 2_000 * MILLISECOND_NS;
/// The partition that scripts look at.
pub(crate) const PARTITION: PartitionId = PartitionId(0);

/// A script of faults.
pub struct Script {
    pub name: &'static str,
    /// Its row in docs/FAULTS.md.
    pub row: u8,
    /// What happens, for `--scenario list`.
    pub what: &'static str,
    pub(super) shape: fn(&mut Scenario),
    pub(super) play: fn(&mut Stage) -> Played,
}

/// `None` if a point that the script waits for did not come.
pub(crate) type Played = Option<()>;

/// The cluster of a script. Its first epoch has begun, and clients are making calls.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) random: Random,
    /// Violations that the script itself has found.
    pub(crate) violations: Vec<String>,
}

impl Script {
    /// Runs the script. The second result: whether its point came.
    pub fn run(&self, seed: u64, print: Option<fn(&str)>) -> (Report, bool) {
        let mut scenario = busy();
        (self.shape)(&mut scenario);
        let mut cluster = Cluster::new(scenario, seed);
        if let Some(print) = print {
            cluster.trace(print);
        }
        let mut stage = Stage { cluster, random: Random::new(!seed), violations: Vec::new() };
        let warm_ns = 250 * MILLISECOND_NS + stage.random.below(50 * MILLISECOND_NS);
        stage.cluster.run_until(warm_ns, |_| false);
        let played = (self.play)(&mut stage);
        let mut report = judge::finish(&mut stage.cluster);
        report.violations.splice(..0, stage.violations);
        (report, played.is_some())
    }
}

/// Three replicas, and clients that make calls for about three seconds.
fn busy() -> Scenario {
    Scenario {
        nodes: 3,
        keyspaces: vec![Shape::multicast(3, 0)],
        spares: 0,
        instances: 1,
        store_lease: Duration::from_secs(1),
        store_faults: StoreFaults::NONE,
        switches: 1,
        trunks: Trunks::None,
        ways_are_whole: false,
        edges: false,
        balancing: true,
        hides_sources: false,
        matching: Default::default(),
        kernel_gets: false,
        hot_interval_ns: 0,
        hot_values: false,
        coordination: Coordination::Switch,
        copy_bytes_per_second: 100 << 20,
        discard_bytes_per_second: 16 << 20,
        clients: 3,
        workload: Workload {
            keys: Key::several(0, 6),
            skew: 1,
            calls: 300,
            window: 2,
            begins_ns: 0,
            retry_min: HURRY,
            pause_ns_max: 20 * MILLISECOND_NS,
            timeout_ns: 1_000 * MILLISECOND_NS,
            expiring: 0,
            large: 0,
            whole_bytes_max: 0,
            appends: 0,
            reads_at_once: 0,
            gets: 0,
            transactions: 0,
            hashes: 0,
            scripts: 0,
            messages: 0,
            scans: (0, 0, 1),
            shift_ns: 0,
        },
        pace: Pace::VARYING,
        timing: Timing::default(),
        faults: Faults { downtime_max_ns: 300 * MILLISECOND_NS, ..Faults::NONE },
        faults_end_ns: 3_000 * MILLISECOND_NS,
        retries_max: None,
    }
}

impl Stage {
    pub(crate) fn run(&mut self, milliseconds: u64) {
        let end_ns = self.cluster.now_ns() + milliseconds * MILLISECOND_NS;
        self.cluster.run_until(end_ns, |cluster| cluster.violation().is_some());
    }

    /// Runs up to a point; `None` if it does not come in time.
    pub(crate) fn run_before(&mut self, is_it: impl FnMut(&Cluster, Seen<'_>) -> bool) -> Played {
        let end_ns = self.cluster.now_ns() + POINT_NS;
        self.cluster.run_before(end_ns, is_it).then_some(())
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        self.cluster.inject(fault);
    }

    /// Number of calls that were answered.
    pub(crate) fn answered(&self) -> usize {
        judge::answered(&self.cluster)
    }

    pub(crate) fn primary(&self) -> Option<usize> {
        self.cluster.primary(PARTITION)
    }

    /// A consistent replica that is not the primary.
    pub(crate) fn secondary(&mut self) -> Option<usize> {
        let primary = self.primary()?;
        let others = judge::members(&self.cluster, PARTITION);
        let others: Vec<usize> = others.into_iter().filter(|node| *node != primary).collect();
        (!others.is_empty()).then(|| self.random.pick(&others))
    }
}

//! Runs a simulation of any protocol, and takes the same counts.

use super::disk::Disk;
use super::event_queue::EventQueue;
use super::metrics::{Metrics, Outcome};

/// The simulation of a protocol.
pub(crate) trait Simulated {
    type Event;

    fn events(&mut self) -> &mut EventQueue<Self::Event>;

    /// The counts, and the disks of all targets.
    fn metrics_and_disks(&mut self) -> (&mut Metrics, impl ExactSizeIterator<Item = &Disk>);

    fn into_metrics(self) -> Metrics;

    fn handle(&mut self, event: Self::Event);
}

/// Handles all events up to `end_ns`.
pub(crate) fn run_to(end_ns: u64, mut simulation: impl Simulated) -> Outcome {
    while let Some(event) = simulation.events().next(end_ns) {
        let now_ns = simulation.events().now_ns();
        sample_disks(&mut simulation, now_ns);
        simulation.handle(event);
    }
    sample_disks(&mut simulation, end_ns);
    let passed = simulation.events().passed();
    simulation.into_metrics().outcome(passed)
}

fn sample_disks(simulation: &mut impl Simulated, now_ns: u64) {
    let (metrics, disks) = simulation.metrics_and_disks();
    metrics.sample_disks(now_ns, disks);
}

//! A run, whatever the protocol: what is counted is counted alike.

use super::calendar::Calendar;
use super::disk::Disk;
use super::tally::{Outcome, Tally};

/// Hosts that speak a protocol.
pub(crate) trait Simulated {
    type Event;

    fn calendar(&mut self) -> &mut Calendar<Self::Event>;

    /// What is counted, and the disks of all targets.
    fn counted(&mut self) -> (&mut Tally, impl ExactSizeIterator<Item = &Disk>);

    fn into_tally(self) -> Tally;

    fn handle(&mut self, event: Self::Event);
}

/// From the events that its calendar has to the end of its time.
pub(crate) fn run_to(end_ns: u64, mut hosts: impl Simulated) -> Outcome {
    while let Some(event) = hosts.calendar().next(end_ns) {
        let now_ns = hosts.calendar().now_ns();
        look(&mut hosts, now_ns);
        hosts.handle(event);
    }
    look(&mut hosts, end_ns);
    let passed = hosts.calendar().passed();
    hosts.into_tally().outcome(passed)
}

fn look(hosts: &mut impl Simulated, now_ns: u64) {
    let (tally, disks) = hosts.counted();
    tally.look(now_ns, disks);
}

//! The processor time of a load on the whole machine: the kernel works for both sides, and
//! charges no process for it.
//!
//! Processor time is steadier than elapsed time: a slow moment of the machine takes time, but no
//! processor time. Other processes on the machine are counted, though.

use std::time::Duration;

/// The unit of `/proc/stat`, on every Linux.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The fields of `/proc/stat` after the name: user, nice, system, idle, iowait, irq, softirq. The
/// rest is stolen time, or counted twice.
const FIELDS: usize = 7;
const IDLE: usize = 3;
const WAITING: usize = 4;
const SOFT_INTERRUPTS: usize = 6;

/// Processor time that the machine has spent since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTime {
    /// All time that was not idle.
    pub(crate) busy: Duration,
    /// In soft interrupts outside of processes: those of a lab are the switch and its links.
    pub(crate) soft_interrupts: Duration,
}

impl MachineTime {
    /// Up to now; zero if `/proc/stat` cannot be read.
    pub(crate) fn now() -> Self {
        std::fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields = line.split_whitespace().map(|field| field.parse().ok());
        let fields: Vec<u32> = fields.take(FIELDS).collect::<Option<_>>()?;
        let idle = fields.get(IDLE)? + fields.get(WAITING)?;
        let busy = TICK * (fields.iter().sum::<u32>() - idle);
        Some(Self { busy, soft_interrupts: TICK * *fields.get(SOFT_INTERRUPTS)? })
    }

    /// Time spent between `earlier` and this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            soft_interrupts: self.soft_interrupts.saturating_sub(earlier.soft_interrupts),
        }
    }
}

/// Counts of a process, all its threads together, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    /// Time on a processor.
    pub(crate) busy: Duration,
    /// How often a thread went to sleep.
    pub(crate) wake_ups: u64,
    /// How often a thread lost its processor to another one.
    pub(crate) preemptions: u64,
    /// Datagrams received and sent in its network namespace.
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
}

impl ProcessCounts {
    /// Zero if the process has ended.
    pub(crate) fn of(process: u32) -> Self {
        let folder = format!("/proc/{process}");
        let mut counts = Self::default();
        for task in std::fs::read_dir(format!("{folder}/task")).into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let busy_ns = read("schedstat").split(' ').next().and_then(|field| field.parse().ok());
            counts.busy += Duration::from_nanos(busy_ns.unwrap_or(0));
            let status = read("status");
            counts.wake_ups += field(&status, "voluntary_ctxt_switches:");
            counts.preemptions += field(&status, "nonvoluntary_ctxt_switches:");
        }
        let network = std::fs::read_to_string(format!("{folder}/net/snmp")).unwrap_or_default();
        (counts.datagrams_in, counts.datagrams_out) = datagrams(&network).unwrap_or_default();
        counts
    }

    /// The counts between `earlier` and this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            wake_ups: self.wake_ups.saturating_sub(earlier.wake_ups),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
            datagrams_in: self.datagrams_in.saturating_sub(earlier.datagrams_in),
            datagrams_out: self.datagrams_out.saturating_sub(earlier.datagrams_out),
        }
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

/// Reads the two lines of UDP: names, then numbers.
fn datagrams(snmp: &str) -> Option<(u64, u64)> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let mut found = (0, 0);
    for (name, number) in names.zip(numbers) {
        match name {
            "InDatagrams" => found.0 = number.parse().ok()?,
            "OutDatagrams" => found.1 = number.parse().ok()?,
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_time_is_all_time_that_is_not_idle() {
        let stat = "cpu  100 1 50 4000 20 0 30 5 0 0\ncpu0 1 2 3 4 5 6 7\n";
        let time = MachineTime::parse(stat).unwrap();
        assert_eq!((time.busy, time.soft_interrupts), (TICK * 181, TICK * 30));
        assert_eq!(MachineTime::parse("cpu0 1 2 3"), None);
        assert!(MachineTime::now().busy > Duration::ZERO);
    }

    #[test]
    fn processor_time_and_sleeps_of_a_process_are_counted() {
        let before = ProcessCounts::of(std::process::id());
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(1));
        let spent = ProcessCounts::of(std::process::id()).since(before);
        assert!(spent.busy > Duration::from_millis(1) && spent.wake_ups > 0, "{spent:?}");
        assert_eq!(ProcessCounts::of(u32::MAX), ProcessCounts::default());
    }

    #[test]
    fn datagram_counts_are_found_by_name() {
        let snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams\nUdp: 7 1 2 9\nUdpLite: InDatagrams\n";
        assert_eq!(datagrams(snmp), Some((7, 9)));
        assert_eq!(datagrams("Tcp: 1"), None);
    }
}

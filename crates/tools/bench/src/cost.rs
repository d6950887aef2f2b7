//! What a load costs, in processor time: of the whole machine, since the kernel works for both sides, on whosever processor, and no
//! process is charged for it.
//!
//! It disturbs the comparison less than time does: a slow moment of the machine costs time and not work. Whatever else runs
//! on the machine is counted, though.

use std::time::Duration;

/// In which `/proc/stat` counts, on every Linux.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The fields of `/proc/stat` after the name: user, nice, system, idle, iowait, irq, softirq. What follows is stolen, or counted already.
const FIELDS: usize = 7;
const IDLE: usize = 3;
const WAITING: usize = 4;
const SOFT_INTERRUPTS: usize = 6;

/// Processor time that the machine has spent since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTime {
    /// All of it.
    pub(crate) busy: Duration,
    /// In soft interrupts outside of processes: of a lab, the switch and its cables.
    pub(crate) soft_interrupts: Duration,
}

impl MachineTime {
    /// Until now; nothing where `/proc` does not tell.
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

    /// What was spent between the two.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            soft_interrupts: self.soft_interrupts.saturating_sub(earlier.soft_interrupts),
        }
    }
}

/// What a process has done so far, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    /// Time on a processor.
    pub(crate) busy: Duration,
    /// How often a thread has gone to sleep, to be woken.
    pub(crate) wake_ups: u64,
    /// How often one has lost its processor to another.
    pub(crate) preemptions: u64,
    /// Datagrams received and sent in its network namespace.
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
}

impl ProcessCounts {
    /// Of a process; nothing of one that has ended.
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

    /// What was done between the two.
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

/// The two lines of UDP: names, then numbers.
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
    fn a_machine_is_busy_when_it_is_not_idle() {
        let stat = "cpu  100 1 50 4000 20 0 30 5 0 0\ncpu0 1 2 3 4 5 6 7\n";
        let time = MachineTime::parse(stat).unwrap();
        assert_eq!((time.busy, time.soft_interrupts), (TICK * 181, TICK * 30));
        assert_eq!(MachineTime::parse("cpu0 1 2 3"), None);
        assert!(MachineTime::now().busy > Duration::ZERO);
    }

    #[test]
    fn a_process_is_charged_for_what_it_does() {
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
    fn datagrams_are_read_by_their_names() {
        let snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams\nUdp: 7 1 2 9\nUdpLite: InDatagrams\n";
        assert_eq!(datagrams(snmp), Some((7, 9)));
        assert_eq!(datagrams("Tcp: 1"), None);
    }
}

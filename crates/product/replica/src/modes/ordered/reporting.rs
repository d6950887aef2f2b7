//! When a member reports its progress to the primary.

use nicekv_proto::Now;

#[derive(Clone, Default)]
pub(crate) struct Reporting {
    /// The latest time for the next report; `None` if none is due.
    due_ns: Option<u64>,
    /// When the last gap was reported.
    gap_ns: u64,
}

impl Reporting {
    /// Makes a report due at `at_ns`, unless one is due already.
    pub(crate) fn be_due(&mut self, at_ns: u64) {
        self.due_ns.get_or_insert(at_ns);
    }

    /// Whether a report is due, now or later.
    pub(crate) fn is_pending(&self) -> bool {
        self.due_ns.is_some()
    }

    /// Whether a report is due now.
    pub(crate) fn is_due(&self, now: Now) -> bool {
        self.due_ns.is_some_and(|due_ns| due_ns <= now.boot_ns)
    }

    /// A report is being sent.
    pub(crate) fn tell(&mut self) {
        self.due_ns = None;
    }

    /// Whether a gap may be reported now: only if the last such report is at least `pause_ns` ago.
    /// If so, records that it is reported.
    pub(crate) fn take_gap(&mut self, now: Now, pause_ns: u64) -> bool {
        let may = now.boot_ns >= self.gap_ns + pause_ns;
        if may {
            self.gap_ns = now.boot_ns;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, unix_ms: 0 }
    }

    #[test]
    fn earliest_due_time_counts_until_reported() {
        let mut reporting = Reporting::default();
        assert!(!reporting.is_pending() && !reporting.is_due(at(u64::MAX)));
        reporting.be_due(10);
        reporting.be_due(20);
        assert!(reporting.is_pending() && !reporting.is_due(at(9)) && reporting.is_due(at(10)));
        reporting.tell();
        assert!(!reporting.is_pending() && !reporting.is_due(at(30)));
    }

    #[test]
    fn gap_reports_are_spaced() {
        let mut reporting = Reporting::default();
        assert!(reporting.take_gap(at(100), 50) && !reporting.take_gap(at(149), 50));
        assert!(reporting.take_gap(at(150), 50) && !reporting.take_gap(at(199), 50));
    }
}

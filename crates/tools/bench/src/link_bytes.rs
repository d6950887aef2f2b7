//! Bytes that a host's link has carried, as its interface counts them.

use crate::error::{BenchError, Result};
use crate::netns::Hosts;
use nicekv_lab::topology::Host;

/// Counters of the interfaces in the calling thread's network namespace.
const COUNTERS: &str = "/proc/thread-self/net/dev";
const INTERFACE: &str = "eth0:";
/// Fields of the interface's line: bytes received, and bytes sent.
const RECEIVED: usize = 0;
const SENT: usize = 8;

/// Bytes, including Ethernet headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkBytes {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl LinkBytes {
    /// Bytes that the link has carried since it was created.
    pub(crate) fn of(hosts: &Hosts, host: Host) -> Result<Self> {
        let text = hosts.inside(host, || std::fs::read_to_string(COUNTERS))?;
        let text = text.map_err(BenchError::system(format!("read {COUNTERS}")))?;
        Self::parse(&text).ok_or_else(|| BenchError::Environment(format!("{host} has no {INTERFACE} {text}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE))?;
        let fields: Vec<u64> =
            line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        Some(Self { received: *fields.get(RECEIVED)?, sent: *fields.get(SENT)? })
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { received: self.received - earlier.received, sent: self.sent - earlier.sent }
    }

    /// In both directions.
    pub(crate) fn both(self) -> u64 {
        self.received + self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_and_sent_bytes_are_distinguished() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        let bytes = LinkBytes::parse(text).unwrap();
        assert_eq!(bytes, LinkBytes { received: 100, sent: 200 });
        assert_eq!(bytes.since(LinkBytes { received: 40, sent: 30 }).both(), 230);
        assert_eq!(LinkBytes::parse("    lo: 1 2 3 4 5 6 7 8 9 10\n"), None);
        assert_eq!(LinkBytes::parse("  eth0: 100 1\n"), None);
    }
}

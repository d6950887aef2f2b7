//! Sockets on which the processes of the cluster receive, for `nicekv status`. This is soft state
//! of the leader: each process reports every few seconds, and silent ones are forgotten.

use nicekv_metadata::{ListeningReport, OpenSocket};
use nicekv_proto::{Duration, Now};
use std::net::IpAddr;

/// Most processes that are remembered. A new one replaces the one with the oldest report.
const PROCESSES_MAX: usize = 1024;
/// Most sockets of a process. `nicekv up` with 64 nodes has three per node, and a gateway one per
/// thread.
const SOCKETS_MAX: usize = 512;
/// Longest text in a report, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// A process is forgotten after this time without a report.
const REMEMBERED: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Process {
    source: IpAddr,
    name: String,
    sockets: Vec<OpenSocket>,
    heard_ns: u64,
}

/// Sockets by process; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Listening {
    processes: Vec<Process>,
}

impl Listening {
    /// Stores a report from `source`. A process is identified by its name and source address,
    /// because processes on different hosts may have the same name (`edge`).
    pub(super) fn report(&mut self, now: Now, source: IpAddr, report: ListeningReport) {
        let ListeningReport { process: mut name, mut sockets } = report;
        shorten(&mut name);
        sockets.truncate(SOCKETS_MAX);
        for OpenSocket { role, protocol, device, purpose, login, .. } in &mut sockets {
            [role, protocol, purpose, login].into_iter().chain(device).for_each(shorten);
        }
        let ago_ns = |process: &Process| now.boot_ns.saturating_sub(process.heard_ns);
        self.processes.retain(|process| {
            ago_ns(process) < REMEMBERED.as_nanos() as u64
                && (process.source, &process.name) != (source, &name)
        });
        if self.processes.len() == PROCESSES_MAX {
            let oldest = self.processes.iter().enumerate().min_by_key(|(_, process)| process.heard_ns);
            let oldest = oldest.map(|(index, _)| index).expect("there are some");
            self.processes.swap_remove(oldest);
        }
        self.processes.push(Process { source, name, sockets, heard_ns: now.boot_ns });
    }

    /// All sockets, ordered by role.
    pub(super) fn sockets(&self) -> Vec<OpenSocket> {
        let mut all: Vec<_> = self.processes.iter().flat_map(|process| process.sockets.clone()).collect();
        all.sort_by(|one, other| {
            let key = |socket: &OpenSocket| (socket.role.clone(), socket.protocol.clone(), socket.address);
            key(one).cmp(&key(other))
        });
        all
    }
}

/// Limits text from the network in length, and removes control characters.
fn shorten(text: &mut String) {
    text.retain(|character| !character.is_control());
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: &str, port: u16) -> ListeningReport {
        let socket = OpenSocket {
            role: process.into(),
            protocol: "tcp".into(),
            address: ([10, 20, 1, 1], port).into(),
            device: None,
            purpose: "copies\x1b[2J".repeat(100),
            login: "none".into(),
            is_protected: false,
        };
        ListeningReport { process: process.into(), sockets: vec![socket] }
    }

    fn at(seconds: u64) -> Now {
        Now { boot_ns: seconds * 1_000_000_000, unix_ms: 0 }
    }

    #[test]
    fn newest_report_counts_until_the_process_is_silent() {
        let (mut listening, host) = (Listening::default(), IpAddr::from([10, 20, 1, 1]));
        listening.report(at(1), host, report("node-1", 7400));
        listening.report(at(2), host, report("node-0", 7400));
        listening.report(at(3), host, report("node-1", 7500));
        let ports = |listening: &Listening| {
            let sockets = listening.sockets();
            sockets.iter().map(|socket| (socket.role.clone(), socket.address.port())).collect::<Vec<_>>()
        };
        assert_eq!(ports(&listening), [("node-0".into(), 7400), ("node-1".into(), 7500)]);
        listening.report(at(32), host, report("node-1", 7500));
        assert_eq!(ports(&listening), [("node-1".into(), 7500)], "node-0 is silent for 30 s");
    }

    #[test]
    fn reports_are_bounded_and_without_control_characters() {
        let (mut listening, host) = (Listening::default(), IpAddr::from([10, 20, 1, 1]));
        for number in 0..=PROCESSES_MAX {
            let mut long = report(&format!("node-{number}"), 7400);
            long.sockets = vec![long.sockets[0].clone(); SOCKETS_MAX + 1];
            listening.report(at(1 + number as u64 / 100), host, long);
        }
        assert_eq!(listening.processes.len(), PROCESSES_MAX);
        assert!(listening.processes.iter().all(|process| process.sockets.len() == SOCKETS_MAX));
        let purpose = &listening.processes[0].sockets[0].purpose;
        assert!(purpose.len() == TEXT_BYTES_MAX && !purpose.contains('\x1b'), "{purpose:?}");
    }
}

//! File descriptors: what the roles of a process need at most, and what is left for Redis clients.
//!
//! ```text
//!   limit of the process ├── its roles: sockets, streams, log, engine, large values ──┤── Redis connections ──┤
//! ```
//!
//! Each number below is a bound that its owner keeps to. So Redis connections, which may be as many as somebody cares to open, never take the descriptor that the log needs for its
//! next segment.

use nicekv_gateway::CONNECTIONS_MAX;
use nicekv_operator::failure::Failure;
use nicekv_runtime::metadata::VISITORS_MAX;
use nicekv_runtime::node::STREAMS_MAX;
use nicekv_store::{OPEN_SEGMENTS_MAX, OPEN_TABLES_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Standard streams, the log of events, signals, connections that read metrics (16), and what libraries open for a moment.
const PROCESS: usize = 48;
/// Sockets, wakers and the lock of a role's directory.
const ROLE: usize = 12;
/// Segments of a node's log: the present one, the next one, one that is removed, and their directory.
const LOG: usize = 8;
/// Tables that a merge reads and writes beside those that are kept open.
const MERGE: usize = 32;
/// Segments of large values in use beside those that are kept open. A node has two sets: of large values, and of chunks of objects.
const SEGMENTS_IN_USE: usize = 16;
/// Sockets, epoll and wakers of a gateway's thread; two listeners.
const GATEWAY_THREAD: usize = 4;
const LISTENERS: usize = 2;
/// Socket and waker of a native client: `up` has one for each keyspace.
const CLIENT: usize = 4;
/// With room for fewer connections a gateway is of no use.
const CONNECTIONS_MIN: usize = 16;

/// How many descriptors the roles of a process need at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(usize);

impl Needs {
    /// A process with no role yet.
    pub(crate) fn of_process() -> Self {
        Self(PROCESS)
    }

    /// One more node.
    pub(crate) fn node(self, is_durable: bool) -> Self {
        let disk = LOG + OPEN_TABLES_MAX + MERGE + 2 * (OPEN_SEGMENTS_MAX + SEGMENTS_IN_USE);
        Self(self.0 + ROLE + STREAMS_MAX + if is_durable { disk } else { 0 })
    }

    /// An instance of the metadata service, with so many switches.
    pub(crate) fn metadata(self, switches: usize) -> Self {
        Self(self.0 + ROLE + LOG + VISITORS_MAX + switches)
    }

    pub(crate) fn switch(self) -> Self {
        Self(self.0 + ROLE)
    }

    /// A gateway of so many threads, less the connections of its clients.
    pub(crate) fn gateway(self, threads: usize) -> Self {
        Self(self.0 + threads * GATEWAY_THREAD + LISTENERS)
    }

    pub(crate) fn clients(self, count: usize) -> Self {
        Self(self.0 + count * CLIENT)
    }

    /// Raises the limit of the process as far as it may, and refuses one that is too low.
    pub(crate) fn check(self) -> Result<(), Failure> {
        self.room(raised_limit(), 0).map(|_| ()).map_err(Failure::Environment)
    }

    /// The same for a process with a gateway: how many connections there may be.
    pub(crate) fn connections(self) -> Result<usize, Failure> {
        self.room(raised_limit(), CONNECTIONS_MIN).map_err(Failure::Environment)
    }

    fn room(self, limit: usize, least: usize) -> Result<usize, String> {
        let needed = self.0 + least;
        match limit.checked_sub(self.0).filter(|room| *room >= least) {
            Some(room) => Ok(room.min(CONNECTIONS_MAX)),
            None => Err(format!(
                "this process may have {limit} open files, and needs {needed} with {least} for Redis connections: raise the limit (`ulimit -Hn`, LimitNOFILE= of systemd)"
            )),
        }
    }
}

/// As many as the system allows without asking.
fn raised_limit() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it cannot be raised, what there is counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_what_the_roles_leave_and_too_low_a_limit_is_refused_with_the_number() {
        let needs = Needs::of_process().metadata(1).switch().node(true).gateway(2).clients(1);
        let Needs(needed) = needs;
        assert_eq!(needs.room(needed + 100, CONNECTIONS_MIN), Ok(100));
        assert_eq!(needs.room(usize::MAX, CONNECTIONS_MIN), Ok(CONNECTIONS_MAX));
        assert_eq!(needs.room(needed, 0), Ok(0));
        let refused = needs.room(needed + CONNECTIONS_MIN - 1, CONNECTIONS_MIN).unwrap_err();
        assert!(refused.contains(&format!("needs {}", needed + CONNECTIONS_MIN)), "{refused}");
    }

    #[test]
    fn an_up_with_the_usual_limit_of_a_shell_has_room_for_clients() {
        let process = Needs::of_process().metadata(1).switch().gateway(8).clients(16);
        for is_durable in [false, true] {
            let needs = (0..3).fold(process, |needs, _| needs.node(is_durable));
            let room = needs.room(1_024, CONNECTIONS_MIN);
            assert!(room.as_ref().is_ok_and(|room| *room >= 64), "{room:?}");
        }
    }
}

//! File descriptors: how many the roles of a process need at most, and how many are left for Redis
//! clients.
//!
//! ```text
//!   limit of the process ├── its roles: sockets, streams, log, engine, large values ──┤── Redis connections ──┤
//! ```
//!
//! No role exceeds its number here. So Redis connections, however many clients open, never take the
//! descriptor that the log needs for its next segment.

use nicekv_gateway::CONNECTIONS_MAX;
use nicekv_operator::failure::Failure;
use nicekv_runtime::metadata::VISITORS_MAX;
use nicekv_runtime::node::STREAMS_MAX;
use nicekv_store::{OPEN_SEGMENTS_MAX, OPEN_TABLES_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Standard streams, the event log, signals, metrics connections (16), and what libraries open briefly.
const PROCESS: usize = 48;
/// A role's sockets, wakers, and the lock of its directory.
const ROLE: usize = 12;
/// Segments of a node's log: current, next, one being removed, and their directory.
const LOG: usize = 8;
/// Tables that a merge has open in addition to the engine's.
const MERGE: usize = 32;
/// Value segments in use, in addition to those that are kept open. A node has two sets: large
/// values and object chunks.
const SEGMENTS_IN_USE: usize = 16;
/// Sockets, epoll and wakers of a gateway thread.
const GATEWAY_THREAD: usize = 4;
const LISTENERS: usize = 2;
/// Socket and waker of a native client; `up` has a client for each keyspace.
const CLIENT: usize = 4;
/// A gateway that could accept fewer connections than this does not start.
const CONNECTIONS_MIN: usize = 16;

/// The maximum number of descriptors that a process needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(usize);

impl Needs {
    /// A process without roles.
    pub(crate) fn of_process() -> Self {
        Self(PROCESS)
    }

    pub(crate) fn node(self, is_durable: bool) -> Self {
        let disk = LOG + OPEN_TABLES_MAX + MERGE + 2 * (OPEN_SEGMENTS_MAX + SEGMENTS_IN_USE);
        Self(self.0 + ROLE + STREAMS_MAX + if is_durable { disk } else { 0 })
    }

    /// A metadata instance with this many switches.
    pub(crate) fn metadata(self, switches: usize) -> Self {
        Self(self.0 + ROLE + LOG + VISITORS_MAX + switches)
    }

    pub(crate) fn switch(self) -> Self {
        Self(self.0 + ROLE)
    }

    /// A gateway with this many threads; connections of clients are not included.
    pub(crate) fn gateway(self, threads: usize) -> Self {
        Self(self.0 + threads * GATEWAY_THREAD + LISTENERS)
    }

    pub(crate) fn clients(self, count: usize) -> Self {
        Self(self.0 + count * CLIENT)
    }

    /// Raises the limit of the process to the maximum. Fails if even that is too low.
    pub(crate) fn check(self) -> Result<(), Failure> {
        self.room(raised_limit(), 0).map(|_| ()).map_err(Failure::Environment)
    }

    /// The same for a process with a gateway. Returns the maximum number of Redis connections.
    pub(crate) fn connections(self) -> Result<usize, Failure> {
        self.room(raised_limit(), CONNECTIONS_MIN).map_err(Failure::Environment)
    }

    fn room(self, limit: usize, least: usize) -> Result<usize, String> {
        let needed = self.0 + least;
        match limit.checked_sub(self.0).filter(|room| *room >= least) {
            Some(room) => Ok(room.min(CONNECTIONS_MAX)),
            None => Err(format!(
                "the limit of open files is {limit}, but {needed} are needed, {least} of them for Redis connections: raise the limit (`ulimit -Hn`, or LimitNOFILE= of systemd)"
            )),
        }
    }
}

/// Raises the soft limit to the hard limit.
fn raised_limit() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, the current limit applies.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_the_rest_and_a_low_limit_is_refused() {
        let needs = Needs::of_process().metadata(1).switch().node(true).gateway(2).clients(1);
        let Needs(needed) = needs;
        assert_eq!(needs.room(needed + 100, CONNECTIONS_MIN), Ok(100));
        assert_eq!(needs.room(usize::MAX, CONNECTIONS_MIN), Ok(CONNECTIONS_MAX));
        assert_eq!(needs.room(needed, 0), Ok(0));
        let refused = needs.room(needed + CONNECTIONS_MIN - 1, CONNECTIONS_MIN).unwrap_err();
        assert!(refused.contains(&format!("but {} are needed", needed + CONNECTIONS_MIN)), "{refused}");
    }

    #[test]
    fn usual_limit_of_a_shell_suffices_for_up() {
        let process = Needs::of_process().metadata(1).switch().gateway(8).clients(16);
        for is_durable in [false, true] {
            let needs = (0..3).fold(process, |needs, _| needs.node(is_durable));
            let room = needs.room(1_024, CONNECTIONS_MIN);
            assert!(room.as_ref().is_ok_and(|room| *room >= 64), "{room:?}");
        }
    }
}

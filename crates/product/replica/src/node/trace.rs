//! What befalls the requests of one client at this node, for an operator who watches it (`nicekv trace`).
//!
//! Whoever is not watched costs one comparison at each step. Only the newest watch counts, and it keeps a bounded number of events: then
//! it is blind.

use alloc::vec::Vec;
use nicekv_proto::{ClientId, NodeId, Now, OpId, Status};

/// Events that a watch keeps.
pub(crate) const TRACE_EVENTS_MAX: usize = 256;

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrived, from its client or from another node.
    Arrived,
    /// What it writes is in the log, and forced.
    Synced,
    /// Primary: this member has said that it is forced there.
    Acknowledged(NodeId),
    /// Primary: it is decided.
    Decided {
        /// On the slow path (R2).
        contended: bool,
    },
    /// The primary's decision arrived, and is in the log.
    Learned {
        /// On the slow path: it does not show yet.
        contended: bool,
    },
    /// What it writes shows.
    Shown,
    /// A get was passed on to the primary, since its key is locked here, or not all of it is held.
    PassedOn,
    /// A get waits for what an op of its key comes to.
    Waits,
    /// The client's answer was handed to the network.
    Answered(Status),
}

/// A step, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// By the boot-time clock.
    pub at_ns: u64,
    /// Which request of the client.
    pub sequence: u64,
    /// What.
    pub step: Step,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    watched: Option<ClientId>,
    events: Vec<TraceEvent>,
}

impl Trace {
    /// Watches this client from now on, and no other any more.
    pub fn watch(&mut self, client: ClientId) {
        self.watched = Some(client);
        self.events = Vec::new();
    }

    /// What happened to the requests of this client, if it is the one that is watched.
    pub fn events(&self, client: ClientId) -> &[TraceEvent] {
        if self.watched == Some(client) { &self.events } else { &[] }
    }

    /// A step of a request.
    #[inline]
    pub fn note(&mut self, now: Now, op: OpId, step: Step) {
        if self.watched == Some(op.client) {
            self.keep(now, op, step);
        }
    }

    #[cold]
    fn keep(&mut self, now: Now, op: OpId, step: Step) {
        if self.events.len() < TRACE_EVENTS_MAX {
            self.events.push(TraceEvent { at_ns: now.boot_ns, sequence: op.sequence, step });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_follows_the_last_watched_client_up_to_a_bound() {
        let now = |boot_ns| Now { boot_ns, unix_ms: 0 };
        let op = |client, sequence| OpId { client: ClientId(client), sequence };
        let mut trace = Trace::default();
        trace.note(now(1), op(0, 1), Step::Arrived);
        trace.watch(ClientId(7));
        trace.note(now(2), op(7, 1), Step::Arrived);
        trace.note(now(3), op(8, 1), Step::Arrived);
        let arrived = TraceEvent { at_ns: 2, sequence: 1, step: Step::Arrived };
        assert_eq!(trace.events(ClientId(7)), [arrived]);
        assert_eq!((trace.events(ClientId(8)), trace.events(ClientId(0))), (&[][..], &[][..]));
        for sequence in 0..2 * TRACE_EVENTS_MAX as u64 {
            trace.note(now(4), op(7, sequence), Step::Shown);
        }
        assert_eq!(trace.events(ClientId(7)).len(), TRACE_EVENTS_MAX);
        trace.watch(ClientId(8));
        assert_eq!(trace.events(ClientId(7)), []);
    }
}

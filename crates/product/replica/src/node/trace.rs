//! Records what happens to the requests of one client at this node, for an operator who traces that
//! client (`nicekv trace`).
//!
//! For other clients each step costs one comparison. Only the newest trace counts. It keeps a
//! bounded number of events; further ones are not recorded.

use alloc::vec::Vec;
use nicekv_proto::{ClientId, NodeId, Now, OpId, Status};

/// How many events a trace keeps.
pub(crate) const TRACE_EVENTS_MAX: usize = 256;

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrived, from its client or from another node.
    Arrived,
    /// Its prepare is in the log and synced.
    Synced,
    /// Primary: this member has acknowledged that it has synced the prepare.
    Acknowledged(NodeId),
    /// Primary: it is decided.
    Decided {
        /// Whether the decision is contended (R2).
        contended: bool,
    },
    /// The primary's decision arrived, and is in the log.
    Learned {
        /// Whether the decision is contended, so that its effect is not shown yet.
        contended: bool,
    },
    /// Its effect is shown.
    Shown,
    /// A get was passed on to the primary, because its key is locked here, or because this member
    /// does not hold everything.
    PassedOn,
    /// A get waits for the outcome of an op of its key.
    Waits,
    /// The reply to the client was queued for sending.
    Answered(Status),
}

/// A step, and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time on the boot-time clock.
    pub at_ns: u64,
    /// Sequence number of the client's request.
    pub sequence: u64,
    /// What.
    pub step: Step,
}

/// The trace of one client; see the module.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    watched: Option<ClientId>,
    events: Vec<TraceEvent>,
}

impl Trace {
    /// Traces this client from now on, and no other.
    pub fn watch(&mut self, client: ClientId) {
        self.watched = Some(client);
        self.events = Vec::new();
    }

    /// The events of this client's requests; empty if another client is traced.
    pub fn events(&self, client: ClientId) -> &[TraceEvent] {
        if self.watched == Some(client) { &self.events } else { &[] }
    }

    /// Records a step of a request.
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

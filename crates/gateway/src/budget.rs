//! The memory of all connections together.
//!
//! Each connection has bounds of its own, but thousands of them can each stay a little below theirs: with commands that they never finish, or
//! replies that they never read. Such memory comes back only when the peer acts, so waiting for room would let silent peers stop all others.
//! Instead, as in Redis (`maxmemory-clients`), the connection that holds the most is closed. It is told why, if nothing is half sent.
//! A connection with small commands that reads its replies is never that one, as long as any other is worse.
//!
//! Before that, when half of the memory is in use, connections are read in smaller pieces.

use crate::connection::Connection;
use crate::error::CommandError;
use crate::limits::{READ_BYTES, READ_BYTES_SCARCE};
use slab::Slab;

#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: usize,
    /// The most since memory was last given back to the system.
    peak: usize,
}

/// Memory in use has to fall by so much before the allocator is told to give back what it keeps.
const GIVEN_BACK_BYTES_MIN: usize = 16 << 20;

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: 0, peak: 0 }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Counts what a connection occupies now.
    pub(crate) fn count(&mut self, connection: &mut Connection) {
        let bytes = connection.memory();
        self.used = self.used - connection.counted_bytes + bytes;
        connection.counted_bytes = bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Whether so much was freed that it is worth while to give it back to the system. Says so once.
    pub(crate) fn take_freed(&mut self) -> bool {
        let much = self.peak - self.used >= GIVEN_BACK_BYTES_MIN;
        if much {
            self.peak = self.used;
        }
        much
    }

    /// Counts a connection no longer.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        self.used -= connection.counted_bytes;
    }

    /// How much may be read from a connection at once.
    pub(crate) fn read_bytes(&self) -> usize {
        if self.used > self.limit / 2 { READ_BYTES_SCARCE } else { READ_BYTES }
    }

    /// If there is too much, the slot of the connection that holds the most.
    pub(crate) fn greediest(&self, connections: &Slab<Connection>) -> Option<usize> {
        if self.used <= self.limit {
            return None;
        }
        connections.iter().max_by_key(|(_, connection)| connection.counted_bytes).map(|(slot, _)| slot)
    }

    /// What that connection is told.
    pub(crate) fn refusal(&self, connection: &Connection) -> CommandError {
        let (bytes, limit) = (connection.counted_bytes, self.limit);
        CommandError::text(format!(
            "ERR closed: all connections together exceed the limit of {limit} bytes for commands and replies, \
             and this one holds the most, {bytes} bytes; what it has no reply for may or may not have taken effect"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_all_hold_is_counted_and_who_holds_the_most_goes_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Slab::new();
        for _ in 0..3 {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            connections.insert(Connection::new(stream, 1, 0));
        }
        let mut budget = Budget::new(1_000);
        for (slot, bytes) in [(0, 300), (1, 500), (2, 200)] {
            connections[slot].counted_bytes = bytes;
            budget.used += bytes;
        }
        assert_eq!((budget.used(), budget.greediest(&connections)), (1_000, None));
        budget.limit = 999;
        assert_eq!(budget.greediest(&connections), Some(1));
        assert!(
            budget
                .refusal(&connections[1])
                .as_bytes()
                .starts_with(b"ERR closed: all connections together exceed the limit of 999")
        );
        budget.forget(&connections[1]);
        assert_eq!(budget.used(), 500);
        for (limit, bytes) in [(1_000, READ_BYTES), (998, READ_BYTES_SCARCE), (1_001, READ_BYTES)] {
            budget.limit = limit;
            assert_eq!(budget.read_bytes(), bytes, "{limit}");
        }
        // A connection is counted as what it occupies now.
        let occupied = connections[0].memory();
        budget.count(&mut connections[0]);
        assert_eq!((budget.used(), connections[0].counted_bytes), (200 + occupied, occupied));
    }

    #[test]
    fn memory_is_given_back_once_when_much_was_freed() {
        let mut budget = Budget::new(1 << 30);
        (budget.peak, budget.used) = (GIVEN_BACK_BYTES_MIN + 5, 6);
        assert!(!budget.take_freed());
        budget.used = 5;
        assert!(budget.take_freed() && !budget.take_freed());
        assert_eq!(budget.peak, 5);
    }
}

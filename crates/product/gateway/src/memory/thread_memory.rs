//! The memory of the connections of one thread, within the limit of all threads.
//!
//! Each connection has its own bounds, but thousands of connections can each stay a little below:
//! with commands that they never finish, or replies that they never read. Such memory is freed only
//! when the peer acts, so if others waited for it, silent peers could stop everybody. Instead, as
//! in Redis (`maxmemory-clients`), the connection that holds the most is closed. It gets an error
//! first, unless a reply is half sent. A connection that sends small commands and reads its replies
//! is never closed as long as another one holds more.
//!
//! Once half of the limit is in use, connections are read in smaller pieces.
//!
//! All threads share the limit, and none has a fixed share: a thread with a long command may use
//! what the others leave. Beyond the limit, the thread that holds the most closes its largest
//! connection. The others wake that thread, and read nothing until it has done so.

use crate::connection::Connection;
use crate::limits::{READ_BYTES, READ_BYTES_SCARCE};
use crate::shared::Member;
use nicekv_redis::error::CommandError;
use slab::Slab;

#[derive(Debug)]
pub(crate) struct ThreadMemory {
    member: Member,
    used: usize,
    /// Peak memory use, in bytes, since the allocator last returned memory to the system.
    peak: usize,
}

/// Memory use has to fall by this much before the allocator returns memory to the system.
const RETURNED_BYTES_MIN: usize = 16 << 20;

impl ThreadMemory {
    pub(crate) fn new(member: Member) -> Self {
        Self { member, used: 0, peak: 0 }
    }

    fn limit(&self) -> usize {
        self.member.server.memory.short_bytes_max()
    }

    /// Updates the count of a connection to the memory that it occupies now.
    pub(crate) fn count(&mut self, connection: &mut Connection) {
        let bytes = connection.memory();
        if bytes != connection.counted_bytes {
            self.set_used(self.used - connection.counted_bytes + bytes);
            connection.counted_bytes = bytes;
        }
        self.peak = self.peak.max(self.occupied());
    }

    /// This thread's bytes, plus the large values that all threads may hold.
    fn occupied(&self) -> usize {
        self.used + self.member.server.memory.large_bytes()
    }

    fn set_used(&mut self, bytes: usize) {
        self.used = bytes;
        self.peak = self.peak.max(self.occupied());
        self.member.server.memory.set_short_bytes(self.member.index, bytes);
    }

    /// Whether enough was freed since the peak to return memory to the system. Resets the peak if
    /// so.
    pub(crate) fn take_freed(&mut self) -> bool {
        let occupied = self.occupied();
        let much = self.peak.saturating_sub(occupied) >= RETURNED_BYTES_MIN;
        if much {
            self.peak = occupied;
        }
        much
    }

    /// Stops counting a connection.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        self.set_used(self.used - connection.counted_bytes);
    }

    /// How much to read from a connection at once; `None` while the limit is exceeded and some
    /// thread has to close a connection.
    pub(crate) fn read_bytes(&self) -> Option<usize> {
        match self.member.server.memory.short_bytes() {
            used if used > self.limit() => None,
            used if used > self.limit() / 2 => Some(READ_BYTES_SCARCE),
            _ => Some(READ_BYTES),
        }
    }

    /// The slot of the largest connection, if the limit is exceeded and this thread holds the most.
    pub(crate) fn largest(&self, connections: &Slab<Connection>) -> Option<usize> {
        let server = &self.member.server;
        if server.memory.short_bytes() <= self.limit() {
            return None;
        }
        let thread = server.memory.largest_thread();
        if thread != self.member.index {
            server.threads[thread].wake();
            return None;
        }
        let all = connections.iter();
        let rank = |connection: &Connection| (!connection.client.is_spared(), connection.counted_bytes);
        all.max_by_key(|(_, connection)| rank(connection)).map(|(slot, _)| slot)
    }

    /// The error that this connection is closed with.
    pub(crate) fn refusal(&self, connection: &Connection) -> CommandError {
        let (bytes, limit) = (connection.counted_bytes, self.limit());
        CommandError::text(format!(
            "ERR closed: all connections together exceed the limit of {limit} bytes for commands and replies, \
             and this one holds the most, {bytes} bytes; what it has no reply for may or may not have taken effect"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stream;
    use nicekv_redis::limits::SHORT_BYTES_MAX;
    use std::net::{TcpListener, TcpStream};

    fn connections(bytes: &[usize], memory: &mut ThreadMemory) -> Slab<Connection> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Slab::new();
        for bytes in bytes {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let slot = connections.insert(Connection::new(Stream::Plain(stream), 1, 0, SHORT_BYTES_MAX));
            connections[slot].counted_bytes = *bytes;
            memory.set_used(memory.used + bytes);
        }
        connections
    }

    #[test]
    fn beyond_the_limit_the_largest_connection_is_closed() {
        for (limit, largest, read) in [
            (2_000, None, Some(READ_BYTES)),
            (1_998, None, Some(READ_BYTES_SCARCE)),
            (1_000, None, Some(READ_BYTES_SCARCE)),
            (999, Some(1), None),
        ] {
            let mut memory = ThreadMemory::new(Member::alone(limit));
            let connections = connections(&[300, 500, 200], &mut memory);
            assert_eq!((memory.largest(&connections), memory.read_bytes()), (largest, read), "{limit}");
            let refusal = memory.refusal(&connections[1]);
            let text = format!("ERR closed: all connections together exceed the limit of {limit}");
            assert!(refusal.as_bytes().starts_with(text.as_bytes()));
            memory.forget(&connections[1]);
            assert_eq!(
                (memory.used, memory.read_bytes()),
                (500, Some(READ_BYTES).filter(|_| limit >= 1_000).or(Some(READ_BYTES_SCARCE)))
            );
        }
    }

    #[test]
    fn a_connection_counts_what_it_occupies_now() {
        let mut memory = ThreadMemory::new(Member::alone(1 << 20));
        let mut connections = connections(&[300, 200], &mut memory);
        let occupied = connections[0].memory();
        memory.count(&mut connections[0]);
        assert_eq!((memory.used, connections[0].counted_bytes), (200 + occupied, occupied));
        assert_eq!(memory.member.server.memory.short_bytes(), 200 + occupied);
    }

    #[test]
    fn the_largest_thread_closes_a_connection_and_the_others_read_nothing_meanwhile() {
        let members = Member::several(3, 1_000);
        let mut memories: Vec<_> = members.into_iter().map(ThreadMemory::new).collect();
        let held: [&[usize]; 3] = [&[200, 100], &[250, 350], &[90]];
        let mut connections: Vec<_> =
            memories.iter_mut().zip(held).map(|(memory, held)| connections(held, memory)).collect();
        assert!(memories.iter().all(|memory| memory.read_bytes() == Some(READ_BYTES_SCARCE)));
        memories[2].set_used(110);
        let largest = |memories: &[ThreadMemory], connections: &[Slab<Connection>]| {
            let each = memories.iter().zip(connections);
            each.map(|(memory, connections)| memory.largest(connections)).collect::<Vec<_>>()
        };
        assert_eq!(largest(&memories, &connections), [None, Some(1), None]);
        assert!(memories.iter().all(|memory| memory.read_bytes().is_none()));
        memories[1].forget(&connections[1].remove(1));
        assert_eq!(largest(&memories, &connections), [None; 3]);
        assert!(memories.iter().all(|memory| memory.read_bytes() == Some(READ_BYTES_SCARCE)));
    }

    #[test]
    fn memory_is_returned_to_the_system_once_when_much_was_freed() {
        let mut memory = ThreadMemory::new(Member::alone(1 << 30));
        (memory.peak, memory.used) = (RETURNED_BYTES_MIN + 5, 6);
        assert!(!memory.take_freed());
        memory.used = 5;
        assert!(memory.take_freed() && !memory.take_freed());
        assert_eq!(memory.peak, 5);
    }
}

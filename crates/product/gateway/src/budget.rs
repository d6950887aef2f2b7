//! The memory of all connections together.
//!
//! Each connection has bounds of its own, but thousands of them can each stay a little below theirs: with commands that they never finish, or
//! replies that they never read. Such memory comes back only when the peer acts, so waiting for room would let silent peers stop all others.
//! Instead, as in Redis (`maxmemory-clients`), the connection that holds the most is closed. It is told why, if nothing is half sent.
//! A connection with small commands that reads its replies is never that one, as long as any other is worse.
//!
//! Large values are not counted here: nobody holds any that was not granted (`permits`).
//!
//! Before that, when half of the memory is in use, connections are read in smaller pieces.
//!
//! The limit is one for all threads of the gateway, and none has a part of it for itself: one that serves a long command may use what the others
//! leave. Beyond the limit the thread that holds the most closes its greediest connection. The others wake it, and read nothing until it has.

use crate::connection::Connection;
use crate::error::CommandError;
use crate::limits::{READ_BYTES, READ_BYTES_SCARCE};
use crate::shared::Member;
use slab::Slab;

/// What the connections of a thread hold, within the limit of all.
#[derive(Debug)]
pub(crate) struct Budget {
    member: Member,
    used: usize,
    /// The most since memory was last given back to the system.
    peak: usize,
}

/// Memory in use has to fall by so much before the allocator is told to give back what it keeps.
const GIVEN_BACK_BYTES_MIN: usize = 16 << 20;

impl Budget {
    /// Of the limit that the gateway has.
    pub(crate) fn new(member: Member) -> Self {
        Self { member, used: 0, peak: 0 }
    }

    fn limit(&self) -> usize {
        self.member.server.memory_bytes_max
    }

    /// Counts what a connection occupies now.
    pub(crate) fn count(&mut self, connection: &mut Connection) {
        let bytes = connection.memory();
        if bytes != connection.counted_bytes {
            self.set_used(self.used - connection.counted_bytes + bytes);
            connection.counted_bytes = bytes;
        }
        self.peak = self.peak.max(self.occupied());
    }

    /// With what is granted to all threads.
    fn occupied(&self) -> usize {
        self.used + self.member.server.permits.held()
    }

    fn set_used(&mut self, bytes: usize) {
        self.used = bytes;
        self.peak = self.peak.max(self.occupied());
        self.member.own().set_memory_bytes(bytes);
    }

    /// Whether so much was freed that it is worth while to give it back to the system. Says so once.
    pub(crate) fn take_freed(&mut self) -> bool {
        let occupied = self.occupied();
        let much = self.peak.saturating_sub(occupied) >= GIVEN_BACK_BYTES_MIN;
        if much {
            self.peak = occupied;
        }
        much
    }

    /// Counts a connection no longer.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        self.set_used(self.used - connection.counted_bytes);
    }

    /// How much may be read from a connection at once; nothing while another thread is to close one.
    pub(crate) fn read_bytes(&self) -> Option<usize> {
        match self.member.server.memory_bytes() {
            used if used > self.limit() => None,
            used if used > self.limit() / 2 => Some(READ_BYTES_SCARCE),
            _ => Some(READ_BYTES),
        }
    }

    /// If there is too much, and this thread holds the most, the slot of its connection that holds the most.
    pub(crate) fn greediest(&self, connections: &Slab<Connection>) -> Option<usize> {
        let server = &self.member.server;
        if server.memory_bytes() <= self.limit() {
            return None;
        }
        let threads = server.threads.iter().enumerate();
        let (index, thread) =
            threads.max_by_key(|(_, thread)| thread.memory_bytes()).expect("a gateway has threads");
        if index != self.member.index {
            thread.wake();
            return None;
        }
        let all = connections.iter();
        let rank =
            |connection: &Connection| (!connection.session.listed.is_spared(), connection.counted_bytes);
        all.max_by_key(|(_, connection)| rank(connection)).map(|(slot, _)| slot)
    }

    /// What that connection is told.
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
    use crate::limits::SHORT_BYTES_MAX;
    use crate::stream::Stream;
    use std::net::{TcpListener, TcpStream};

    fn connections(bytes: &[usize], budget: &mut Budget) -> Slab<Connection> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = Slab::new();
        for bytes in bytes {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let slot = connections.insert(Connection::new(Stream::Plain(stream), 1, 0, SHORT_BYTES_MAX));
            connections[slot].counted_bytes = *bytes;
            budget.set_used(budget.used + bytes);
        }
        connections
    }

    #[test]
    fn what_all_hold_is_counted_and_who_holds_the_most_goes_first() {
        for (limit, greediest, read) in [
            (2_000, None, Some(READ_BYTES)),
            (1_998, None, Some(READ_BYTES_SCARCE)),
            (1_000, None, Some(READ_BYTES_SCARCE)),
            (999, Some(1), None),
        ] {
            let mut budget = Budget::new(Member::alone(limit));
            let connections = connections(&[300, 500, 200], &mut budget);
            assert_eq!((budget.greediest(&connections), budget.read_bytes()), (greediest, read), "{limit}");
            let refusal = budget.refusal(&connections[1]);
            let told = format!("ERR closed: all connections together exceed the limit of {limit}");
            assert!(refusal.as_bytes().starts_with(told.as_bytes()));
            budget.forget(&connections[1]);
            assert_eq!(
                (budget.used, budget.read_bytes()),
                (500, Some(READ_BYTES).filter(|_| limit >= 1_000).or(Some(READ_BYTES_SCARCE)))
            );
        }
    }

    #[test]
    fn a_connection_is_counted_as_what_it_occupies_now() {
        let mut budget = Budget::new(Member::alone(1 << 20));
        let mut connections = connections(&[300, 200], &mut budget);
        let occupied = connections[0].memory();
        budget.count(&mut connections[0]);
        assert_eq!((budget.used, connections[0].counted_bytes), (200 + occupied, occupied));
        assert_eq!(budget.member.server.memory_bytes(), 200 + occupied);
    }

    #[test]
    fn of_several_threads_the_one_that_holds_the_most_closes_and_the_others_read_nothing_meanwhile() {
        let members = Member::several(3, 1_000);
        let mut budgets: Vec<_> = members.into_iter().map(Budget::new).collect();
        let held: [&[usize]; 3] = [&[200, 100], &[250, 350], &[90]];
        let mut connections: Vec<_> =
            budgets.iter_mut().zip(held).map(|(budget, held)| connections(held, budget)).collect();
        assert!(budgets.iter().all(|budget| budget.read_bytes() == Some(READ_BYTES_SCARCE)));
        budgets[2].set_used(110);
        let greediest = |budgets: &[Budget], connections: &[Slab<Connection>]| {
            let each = budgets.iter().zip(connections);
            each.map(|(budget, connections)| budget.greediest(connections)).collect::<Vec<_>>()
        };
        assert_eq!(greediest(&budgets, &connections), [None, Some(1), None]);
        assert!(budgets.iter().all(|budget| budget.read_bytes().is_none()));
        budgets[1].forget(&connections[1].remove(1));
        assert_eq!(greediest(&budgets, &connections), [None; 3]);
        assert!(budgets.iter().all(|budget| budget.read_bytes() == Some(READ_BYTES_SCARCE)));
    }

    #[test]
    fn memory_is_given_back_once_when_much_was_freed() {
        let mut budget = Budget::new(Member::alone(1 << 30));
        (budget.peak, budget.used) = (GIVEN_BACK_BYTES_MIN + 5, 6);
        assert!(!budget.take_freed());
        budget.used = 5;
        assert!(budget.take_freed() && !budget.take_freed());
        assert_eq!(budget.peak, 5);
    }
}

//! The way of a connection's requests into the client, and of their answers back.

use crate::server_state::ServerState;
use nicekv_client::{ClientCore, Request, SubmitError, Ticket};
use nicekv_wire::{Duration, KeyspaceId, Now};
use std::hash::{BuildHasher, RandomState};

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Place of the connection in the event loop's table.
    pub(crate) slot: usize,
    /// Its id: the place may have been given to another one since.
    pub(crate) connection: u64,
    /// Number of the command on the connection.
    pub(crate) command: u64,
    /// Number of the request in the command.
    pub(crate) part: usize,
}

/// The origin of each request in flight, by the index of its ticket.
#[derive(Debug, Default)]
pub(crate) struct Origins(Vec<Option<Origin>>);

impl Origins {
    pub(crate) fn take(&mut self, ticket: Ticket) -> Origin {
        self.0[ticket.index()].take().expect("every ticket has an origin")
    }
}

/// What a connection needs of the event loop to issue commands.
pub(crate) struct Requests<'a> {
    pub(crate) now: Now,
    pub(crate) core: &'a mut ClientCore,
    pub(crate) origins: &'a mut Origins,
    pub(crate) server: &'a mut ServerState,
    pub(crate) hasher: &'a RandomState,
    pub(crate) timeout: Duration,
}

impl Requests<'_> {
    pub(crate) fn room(&self) -> usize {
        self.core.room()
    }

    /// Names a key within a connection. Two keys with one hash only wait for each other needlessly.
    pub(crate) fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        self.hasher.hash_one((keyspace.0, key))
    }

    pub(crate) fn submit(
        &mut self,
        keyspace: KeyspaceId,
        request: Request<'_>,
        origin: Origin,
    ) -> Result<(), SubmitError> {
        let ticket = self.core.submit(self.now, keyspace, request, self.now.after(self.timeout))?;
        let origins = &mut self.origins.0;
        if origins.len() <= ticket.index() {
            origins.resize(ticket.index() + 1, None);
        }
        origins[ticket.index()] = Some(origin);
        Ok(())
    }
}

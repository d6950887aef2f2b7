//! Which replica a large value is read from.

use alloc::collections::VecDeque;
use nicekv_proto::large::{ANY_REPLICA, RECEIVERS_ALL, receiver_bit};
use nicekv_proto::{KeyDigest, KeyspaceId, NodeId, OpId};

/// The keyspace, key and op that chunks belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) op: OpId,
    pub(crate) digest: KeyDigest,
}

/// Replicas to read a large value from.
#[derive(Clone, Debug)]
pub(crate) enum ReadSource {
    /// The replica that the switch selects; this is its token.
    Any(u64),
    /// These replicas, tried in order: the next one after a timeout.
    Holders(VecDeque<NodeId>),
}

/// The replica that chunks are requested from, and the token that it expects.
#[derive(Clone, Debug, Default)]
pub(super) struct Replica {
    /// The first one is asked; if the list is empty, the switch chooses a replica.
    holders: VecDeque<NodeId>,
    token: u64,
    /// Another token was tried since the last chunk arrived.
    is_token_new: bool,
}

impl Replica {
    pub(super) fn new(source: ReadSource) -> Self {
        match source {
            ReadSource::Any(token) => Self { token, ..Self::default() },
            ReadSource::Holders(holders) => Self { holders, ..Self::default() },
        }
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// The replica's id, and the mask by which a switch leaves out the others.
    pub(super) fn address(&self) -> (NodeId, u16) {
        match self.holders.front() {
            Some(replica) => (*replica, receiver_bit(*replica)),
            None => (ANY_REPLICA, RECEIVERS_ALL),
        }
    }

    /// Continues with the next holder, which has its own token.
    pub(super) fn next(&mut self) {
        if self.holders.len() > 1 {
            self.holders.rotate_left(1);
            (self.token, self.is_token_new) = (0, false);
        }
    }

    /// Removes the replica, because it does not hold the value. Returns whether another one is
    /// left.
    pub(super) fn lose(&mut self) -> bool {
        self.holders.pop_front();
        (self.token, self.is_token_new) = (0, false);
        !self.holders.is_empty()
    }

    /// A replica expects this token. Returns whether the requests in flight have to be sent again.
    pub(super) fn take_token(&mut self, token: u64) -> bool {
        let is_known = core::mem::replace(&mut self.token, token) == token;
        !is_known && !core::mem::replace(&mut self.is_token_new, true)
    }

    /// A chunk has come.
    pub(super) fn on_chunk(&mut self) {
        self.is_token_new = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_asked_in_turn_each_with_its_own_token() {
        let mut replica = Replica::new(ReadSource::Holders([NodeId(1), NodeId(17), NodeId(3)].into()));
        assert_eq!(replica.address(), (NodeId(1), 2));
        assert!(
            replica.take_token(7) && !replica.take_token(7) && !replica.take_token(8),
            "one is tried at once"
        );
        replica.next();
        assert_eq!((replica.address(), replica.token()), ((NodeId(17), 2), 0));
        assert!(replica.take_token(9) && replica.lose());
        assert_eq!((replica.address(), replica.token()), ((NodeId(3), 8), 0));
        replica.next();
        assert!(
            replica.lose() && !replica.lose(),
            "the one that was asked first is asked again before the end"
        );
    }

    #[test]
    fn token_changes_with_the_replica_that_the_switch_chooses() {
        let mut replica = Replica::new(ReadSource::Any(5));
        replica.next();
        assert_eq!((replica.address(), replica.token()), ((ANY_REPLICA, RECEIVERS_ALL), 5));
        assert!(replica.take_token(6) && !replica.take_token(5));
        replica.on_chunk();
        assert!(replica.take_token(6));
    }
}

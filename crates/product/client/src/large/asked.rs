//! Of whom a large value is read.

use alloc::collections::VecDeque;
use nicekv_proto::NodeId;
use nicekv_proto::large::{ANY_REPLICA, RECEIVERS_ALL, receiver_bit};

/// Who has the value.
#[derive(Clone, Debug)]
pub(crate) enum From {
    /// Whom the switch passes questions to; what it has told of a token.
    Any(u64),
    /// These replicas. One is asked until it is silent.
    Holders(VecDeque<NodeId>),
}

/// Who is asked, and the token that it wants to be shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The first is being asked; empty: whom the switch passes it to.
    holders: VecDeque<NodeId>,
    token: u64,
    /// Another token was tried since a chunk came.
    is_token_new: bool,
}

impl Asked {
    pub(super) fn new(from: From) -> Self {
        match from {
            From::Any(token) => Self { token, ..Self::default() },
            From::Holders(holders) => Self { holders, ..Self::default() },
        }
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// The replica, and the mask by which a switch leaves the others out.
    pub(super) fn replica(&self) -> (NodeId, u16) {
        match self.holders.front() {
            Some(replica) => (*replica, receiver_bit(*replica)),
            None => (ANY_REPLICA, RECEIVERS_ALL),
        }
    }

    /// The next one of those who have it. Its token is another one.
    pub(super) fn next(&mut self) {
        if self.holders.len() > 1 {
            self.holders.rotate_left(1);
            (self.token, self.is_token_new) = (0, false);
        }
    }

    /// The one that is asked has it not; whether there is another.
    pub(super) fn lose(&mut self) -> bool {
        self.holders.pop_front();
        (self.token, self.is_token_new) = (0, false);
        !self.holders.is_empty()
    }

    /// A replica wants to be shown this token. Whether what is under way is to be asked for again.
    pub(super) fn take_token(&mut self, token: u64) -> bool {
        let is_known = core::mem::replace(&mut self.token, token) == token;
        !is_known && !core::mem::replace(&mut self.is_token_new, true)
    }

    /// A chunk has come.
    pub(super) fn has_answered(&mut self) {
        self.is_token_new = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_asked_in_turn_each_with_its_own_token() {
        let mut asked = Asked::new(From::Holders([NodeId(1), NodeId(17), NodeId(3)].into()));
        assert_eq!(asked.replica(), (NodeId(1), 2));
        assert!(asked.take_token(7) && !asked.take_token(7) && !asked.take_token(8), "one is tried at once");
        asked.next();
        assert_eq!((asked.replica(), asked.token()), ((NodeId(17), 2), 0));
        assert!(asked.take_token(9) && asked.lose());
        assert_eq!((asked.replica(), asked.token()), ((NodeId(3), 8), 0));
        asked.next();
        assert!(asked.lose() && !asked.lose(), "the one that was asked first is asked again before the end");
    }

    #[test]
    fn whom_the_switch_chooses_may_change_and_so_may_the_token() {
        let mut asked = Asked::new(From::Any(5));
        asked.next();
        assert_eq!((asked.replica(), asked.token()), ((ANY_REPLICA, RECEIVERS_ALL), 5));
        assert!(asked.take_token(6) && !asked.take_token(5));
        asked.has_answered();
        assert!(asked.take_token(6));
    }
}

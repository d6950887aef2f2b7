//! What was published and this client was told, until its driver takes it. Each message comes once, whoever repeats it (M1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_wire::publish::Published;
use nicekv_wire::{KeyspaceId, Recent};

/// Messages that wait to be taken; with more, those that come are dropped.
const WAITING_MAX: usize = 8_192;
/// Messages that are remembered, to tell repeats apart: a publisher that got no answer, as the primary has died, has another one publish it again.
const RECENT_MAX: usize = 65_536;

/// A message to whoever listens to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// In which keyspace.
    pub keyspace: KeyspaceId,
    /// To which channel.
    pub channel: Vec<u8>,
    /// What.
    pub message: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    waiting: VecDeque<Message>,
    recent: Recent,
}

impl Default for Heard {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), recent: Recent::new(RECENT_MAX) }
    }
}

impl Heard {
    /// Takes a message in; false if there is no room for it.
    pub(crate) fn take_in(&mut self, published: &Published<'_>) -> bool {
        if self.waiting.len() == WAITING_MAX {
            return false;
        }
        if self.recent.note(published.op, 0) {
            self.waiting.push_back(Message {
                keyspace: published.keyspace,
                channel: published.channel.to_vec(),
                message: published.message.to_vec(),
            });
        }
        true
    }

    /// Repeats are no longer told apart from what came before.
    pub(crate) fn forget(&mut self) {
        self.recent = Recent::new(RECENT_MAX);
    }

    pub(crate) fn poll(&mut self) -> Option<Message> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_wire::{ClientId, OpId};

    #[test]
    fn a_message_comes_once_and_what_nobody_takes_has_a_bound() {
        let mut heard = Heard::default();
        let published = |sequence| Published {
            keyspace: KeyspaceId::DEFAULT,
            op: OpId { client: ClientId(7), sequence },
            channel: b"c",
            message: b"m",
        };
        assert!(heard.take_in(&published(1)) && heard.take_in(&published(1)) && heard.take_in(&published(2)));
        assert_eq!((heard.poll().unwrap().message, heard.poll().is_some()), (b"m".to_vec(), true));
        assert_eq!(heard.poll(), None);
        assert!(heard.take_in(&published(2)) && heard.poll().is_none(), "it was taken before");
        for sequence in 3..WAITING_MAX as u64 + 3 {
            assert!(heard.take_in(&published(sequence)));
        }
        assert!(!heard.take_in(&published(0)));
    }
}

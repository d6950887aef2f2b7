//! Published messages that have arrived and were not taken yet. Each message is delivered once,
//! however often it is repeated (M1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::publish::Published;
use nicekv_proto::{KeyspaceId, Recent};

/// Maximum messages that wait to be taken. Further ones are dropped.
const WAITING_MAX: usize = 8_192;
/// Maximum bytes of these messages together.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Ops that are remembered to recognise repeats: if a primary dies before it answers, the publisher has the message
/// published again.
const RECENT_MAX: usize = 65_536;

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The keyspace of the channel.
    pub keyspace: KeyspaceId,
    /// The channel.
    pub channel: Vec<u8>,
    /// The message.
    pub message: Vec<u8>,
}

/// The messages that wait to be taken.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    recent: Recent,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), waiting_bytes: 0, recent: Recent::new(RECENT_MAX) }
    }
}

impl Inbox {
    /// Adds a message; false if there is no room for it.
    pub(crate) fn push(&mut self, published: &Published<'_>) -> bool {
        let bytes = published.channel.len() + published.message.len();
        if self.waiting.len() == WAITING_MAX || self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            return false;
        }
        if self.recent.note(published.op, 0) {
            self.waiting_bytes += bytes;
            self.waiting.push_back(Message {
                keyspace: published.keyspace,
                channel: published.channel.to_vec(),
                message: published.message.to_vec(),
            });
        }
        true
    }

    pub(crate) fn poll(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.channel.len() + message.message.len();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{ClientId, OpId};

    #[test]
    fn message_is_delivered_once_and_their_number_is_bounded() {
        let mut inbox = Inbox::default();
        let published = |sequence| Published {
            keyspace: KeyspaceId::DEFAULT,
            op: OpId { client: ClientId(7), sequence },
            channel: b"c",
            message: b"m",
        };
        assert!(inbox.push(&published(1)) && inbox.push(&published(1)) && inbox.push(&published(2)));
        assert_eq!((inbox.poll().unwrap().message, inbox.poll().is_some()), (b"m".to_vec(), true));
        assert_eq!(inbox.poll(), None);
        assert!(inbox.push(&published(2)) && inbox.poll().is_none(), "it was delivered before");
        for sequence in 3..WAITING_MAX as u64 + 3 {
            assert!(inbox.push(&published(sequence)));
        }
        assert!(!inbox.push(&published(0)));
    }

    #[test]
    fn bytes_of_messages_are_bounded_until_they_are_taken() {
        let (mut inbox, message) = (Inbox::default(), [7; 1 << 15]);
        let push = |inbox: &mut Inbox, sequence| {
            let op = OpId { client: ClientId(7), sequence };
            inbox.push(&Published { keyspace: KeyspaceId::DEFAULT, op, channel: b"", message: &message })
        };
        let room = (WAITING_BYTES_MAX / message.len()) as u64;
        assert!((0..room).all(|sequence| push(&mut inbox, sequence)));
        assert!(!push(&mut inbox, room) && inbox.poll().is_some() && push(&mut inbox, room + 1));
        assert!(!push(&mut inbox, room + 2));
    }
}

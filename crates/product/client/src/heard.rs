//! What was published and this client was told, until its driver takes it. Each message comes once, whoever repeats it (M1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::publish::Published;
use nicekv_proto::{KeyspaceId, Recent};

/// Messages that wait to be taken; with more, those that come are dropped.
const WAITING_MAX: usize = 8_192;
/// Bytes of these.
const WAITING_BYTES_MAX: usize = 32 << 20;
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
    waiting_bytes: usize,
    recent: Recent,
}

impl Default for Heard {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), waiting_bytes: 0, recent: Recent::new(RECENT_MAX) }
    }
}

impl Heard {
    /// Takes a message in; false if there is no room for it.
    pub(crate) fn take_in(&mut self, published: &Published<'_>) -> bool {
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

    #[test]
    fn long_messages_that_nobody_takes_have_a_bound_and_room_again_once_they_are_taken() {
        let (mut heard, message) = (Heard::default(), [7; 1 << 15]);
        let take_in = |heard: &mut Heard, sequence| {
            let op = OpId { client: ClientId(7), sequence };
            heard.take_in(&Published { keyspace: KeyspaceId::DEFAULT, op, channel: b"", message: &message })
        };
        let room = (WAITING_BYTES_MAX / message.len()) as u64;
        assert!((0..room).all(|sequence| take_in(&mut heard, sequence)));
        assert!(!take_in(&mut heard, room) && heard.poll().is_some() && take_in(&mut heard, room + 1));
        assert!(!take_in(&mut heard, room + 2));
    }
}

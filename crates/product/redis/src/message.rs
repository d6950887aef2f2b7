//! Messages that a transaction or script publishes after its steps.

use alloc::boxed::Box;

#[derive(Debug)]
pub struct Message {
    pub channel: Box<[u8]>,
    pub message: Box<[u8]>,
}

impl Message {
    pub fn memory(&self) -> usize {
        self.channel.len() + self.message.len()
    }
}

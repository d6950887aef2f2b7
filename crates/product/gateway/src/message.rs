//! Messages that are published when something else is done.

/// See the module.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) channel: Box<[u8]>,
    pub(crate) message: Box<[u8]>,
}

impl Message {
    pub(crate) fn memory(&self) -> usize {
        self.channel.len() + self.message.len()
    }
}

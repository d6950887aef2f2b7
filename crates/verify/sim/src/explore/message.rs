//! Datagrams in flight. Equal datagrams are stored once: duplication is left to the random runs.

use nicekv_proto::{Datagram, Epoch};
use std::rc::Rc;

/// A datagram in flight.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Index of the receiving node.
    pub to: usize,
    pub(super) bytes: Rc<[u8]>,
    /// The epoch of a message between nodes.
    pub(super) epoch: Option<Epoch>,
}

impl Message {
    pub(super) fn new(to: usize, bytes: Rc<[u8]>) -> Self {
        let epoch = epoch_of(&bytes);
        Self { to, bytes, epoch }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "to node {}: {}", self.to, crate::transcript::describe(&self.bytes))
    }
}

pub(super) fn decoded(bytes: &[u8]) -> Datagram<'_> {
    Datagram::decode(bytes).expect("sent by our own").1
}

fn epoch_of(bytes: &[u8]) -> Option<Epoch> {
    Some(match decoded(bytes) {
        Datagram::Acks(acks) => {
            let prepares = acks.prepares.iter().map(|ack| ack.epoch);
            prepares.chain(acks.progress.iter().map(|progress| progress.epoch)).max()?
        }
        Datagram::Decisions(decisions) => {
            decisions.watermarks.iter().map(|watermark| watermark.epoch).max()?
        }
        Datagram::Forwards(forwards) => forwards.watermarks.iter().map(|watermark| watermark.epoch).max()?,
        Datagram::Resend(resend) => resend.epoch,
        Datagram::RecoverRequest(request) => request.epoch,
        Datagram::RecoverReply(reply) => reply.epoch,
        Datagram::Fetch(fetch) => fetch.epoch,
        Datagram::Assign(assign) => assign.epoch,
        Datagram::Get(get) => get.forwarded?.1,
        _ => return None,
    })
}

//! What becomes of requests that were directed by the client's own directory (`coordination`).

use crate::in_flight::InFlight;
use crate::slot::State;
use core::net::SocketAddrV4;
use nicekv_proto::OpId;
use nicekv_proto::directory::DirectoryPage;

impl InFlight {
    /// A node has told what its directory names.
    pub(crate) fn on_directory(&mut self, now_ns: u64, from: SocketAddrV4, page: &DirectoryPage<'_>) {
        for (index, op) in self.coordinator.on_page(from, page) {
            let slot = &self.slots[index as usize];
            if slot.op == op && slot.state == State::InFlight {
                self.counters.retries += 1;
                self.transmit(index, now_ns);
            }
        }
    }

    /// A node has refused a request that was directed to it.
    pub(crate) fn on_misdirected(&mut self, now_ns: u64, op: OpId) {
        let Some(index) = self.find(op) else {
            self.counters.stray_replies += 1;
            return;
        };
        self.counters.misdirected += 1;
        self.coordinator.refused(index, op, self.slots.len());
        self.coordinator.doubt(now_ns);
    }
}

//! Gets and scans of a chain. The tail answers them (C3), after asking the head if a value seems to
//! have expired (R11).

use super::Chain;
use crate::Host;
use crate::modes::entry::is_overdue;
use crate::modes::ordered::OrderedPartition;
use crate::modes::ordered::locks::WaitingGet;
use core::net::SocketAddrV4;
use nicekv_proto::recovery::Entry;
use nicekv_proto::scan::Scan;
use nicekv_proto::{Get, Now};

impl OrderedPartition<Chain> {
    /// Whether this node is the tail, and has released everything that an earlier tail may have
    /// shown (C7).
    pub(crate) fn tail_answers_gets(&self, host: &Host) -> bool {
        let is_released = self.sequence.base().is_some_and(|base| self.sequence.released() >= base);
        self.speaks(host) && (is_released || self.mode.neighbours.is_entitled)
    }

    /// A get arrives. The tail gets it from a client, or back from the head, which has judged the
    /// expiry. The head gets it from the tail, which found a value that seems overdue.
    pub(crate) fn on_get(&mut self, host: &mut Host, now: Now, get: &Get<'_>, from: SocketAddrV4) {
        let reply_to = get.reply_to.unwrap_or(from);
        let is_judged = get.forwarded.is_some_and(|(_, _, node)| node == self.membership.primary);
        let waiting = WaitingGet { op: get.op, reply_to, is_judged };
        if self.is_tail(host) {
            match self.tail_answers_gets(host) && host.has_lease(now) {
                true => self.serve_get(host, now, waiting, get.key),
                false => host.counters.dropped += 1,
            }
        } else if get.forwarded.is_some() && self.is_primary() {
            match self.locks.is_locked(get.key) {
                true => self.wait_for_outcome(host, waiting, get.key),
                false => self.serve_get(host, now, waiting, get.key),
            }
        } else {
            // This node is not the tail, and the tail has not passed the get on to it as the head:
            // the sender's switch has outdated tables.
            host.counters.dropped += 1;
        }
    }

    /// Head: a get met a value at the tail that may have expired. Only the head's clock decides
    /// that (R11). An expired value is deleted first, otherwise the tail answers.
    pub(crate) fn judge_expiry(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: &[u8],
        entry: Option<Entry<'_>>,
    ) {
        match entry.filter(|entry| is_overdue(entry.expiry_ms, now)) {
            Some(entry) if self.is_primary() => self.expire_for(host, now, key, entry.version, get),
            _ => {
                let Some(tail) = self.membership.tail().and_then(|tail| self.membership.address(tail)) else {
                    return;
                };
                self.pass_get(host, now, get, key, tail);
            }
        }
    }

    /// A scan arrives. The tail answers it, because the tail is the first to release decisions
    /// (C3).
    pub(crate) fn on_scan(&mut self, host: &mut Host, now: Now, scan: &Scan<'_>, from: SocketAddrV4) {
        let reply_to = scan.reply_to.unwrap_or(from);
        if self.membership.standing.serves() && !self.is_tail(host) {
            let tail = self.membership.tail().unwrap_or(self.membership.primary);
            return self.forward_scan(host, scan, reply_to, tail);
        }
        let is_recovered = self.tail_answers_gets(host);
        self.read_piece(host, now, scan, reply_to, is_recovered);
    }
}

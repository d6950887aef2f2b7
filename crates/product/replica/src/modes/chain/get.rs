//! Gets and scans of a chain: the tail answers them (C3), and asks the head whether a value has
//! expired (R11).

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

    /// A get. At the tail: of a client, or returned by the head after it judged the expiry. At the
    /// head: passed on by the tail, which found a value that seems overdue.
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
            // The sender's switch has another tail in its tables.
            host.counters.dropped += 1;
        }
    }

    /// Head: judges by its own clock, which alone counts (R11), whether the value that a get met at
    /// the tail has expired. An expired value is deleted first; otherwise the tail answers.
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

    /// A scan: the tail answers it, because it releases first (C3).
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

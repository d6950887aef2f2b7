//! Scans (C11).
//!
//! The primary's engine holds the value that was last shown of every key, because a decision is
//! written to the engine when it may be shown (R2). So a page, read at one moment, is the state of
//! the partition at that moment, once every op from before the epoch is decided and released (R3,
//! R4). Other members may lack decisions, and their locks show that for single keys only. So they
//! pass a scan on: to the primary or, in a chain, to the tail, which releases first (C3).

use super::partition::{Agreement, OrderedPartition};
use super::waits::{ClientScan, ScanPurpose};
use crate::modes::bounds::{SCAN_PAGE_BYTES, SCANS_MAX};
use crate::modes::ordered::pieces::{Frame, Piece};
use crate::{Host, Page, Standing};
use core::net::SocketAddrV4;
use nicekv_proto::scan::{Scan, ScanPiece, ScanWants};
use nicekv_proto::{NodeId, Now};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Reads a piece of this partition's keys. `is_recovered`: all decisions from before this epoch
    /// are shown here. A scan that cannot be answered now is dropped, and the client asks again.
    pub(crate) fn read_piece(
        &mut self,
        host: &mut Host,
        now: Now,
        scan: &Scan<'_>,
        reply_to: SocketAddrV4,
        is_recovered: bool,
    ) {
        let is_ready = host.has_lease(now) && is_recovered;
        let is_standing = self.membership.standing == Standing::Consistent;
        if !is_standing || !is_ready || self.waits.scans() >= SCANS_MAX {
            host.counters.dropped += 1;
            return;
        }
        let bytes_max = scan.answer_bytes_max() - ScanPiece::FIXED_BYTES;
        // Without values an answer takes fewer bytes than the page from which it is made.
        let page_bytes = if scan.wants == ScanWants::Values { bytes_max } else { SCAN_PAGE_BYTES };
        let token = host.scan(self.id(), scan.after, page_bytes);
        let frame = Frame { wants: scan.wants, range: scan.range, order: self.membership.order, bytes_max };
        let purpose = ScanPurpose::Client(ClientScan {
            op: scan.op,
            reply_to,
            frame,
            is_one_of_several: scan.pieces > 1,
        });
        self.waits.scan(token, self.membership.epoch, purpose);
    }

    /// Passes a client's scan on to the member that answers scans.
    pub(crate) fn forward_scan(&self, host: &mut Host, scan: &Scan<'_>, reply_to: SocketAddrV4, to: NodeId) {
        if scan.forwarded.is_some() {
            return;
        }
        let forwarded = Some((self.id(), self.membership.epoch, host.config.node));
        let scan = Scan { reply_to: Some(reply_to), forwarded, ..*scan };
        host.counters.gets_forwarded += 1;
        let Some(to) = self.membership.address(to) else { return };
        host.outbox.send(to, |out| scan.encode(out));
    }

    /// The engine has read the page for a scan, and the epoch has not changed since.
    pub(crate) fn on_client_scanned(&mut self, host: &mut Host, now: Now, scan: ClientScan, page: &Page<'_>) {
        let ClientScan { op, reply_to, frame, is_one_of_several } = scan;
        if !host.has_lease(now) {
            host.counters.dropped += 1;
            return;
        }
        // At the tail of a chain no value counts as overdue: a value exists until the head has it
        // deleted, by the head's clock (R11).
        let judged_at = if self.is_primary() { now } else { Now { unix_ms: 0, ..now } };
        let piece = Piece::of(page, frame, judged_at);
        for (key, version) in piece.overdue {
            if self.is_primary() && !self.locks.is_locked(key) {
                self.order_alone(host, now, key, version);
            }
        }
        // Drop an answer that would cover nothing. But a client that asks for several pieces at
        // once uses even that: it learns how far this partition goes, and asks again for what did
        // not fit.
        if piece.is_cut && piece.is_empty && !is_one_of_several {
            host.counters.dropped += 1;
            return;
        }
        let more = piece.is_cut || page.more;
        let told = ScanPiece {
            op,
            partition: self.id(),
            epoch: self.membership.epoch,
            range: frame.range,
            more,
            count: piece.count,
            through: piece.through.filter(|_| more),
            listed: &piece.listed,
        };
        host.counters.gets += 1;
        host.outbox.send(reply_to, |out| told.encode(out));
    }
}

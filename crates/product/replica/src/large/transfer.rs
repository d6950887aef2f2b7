//! The transfer of one large value from a client.

use super::ROOM;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::large::{Hole, Reference, TransferReport};
use nicekv_proto::{Epoch, NodeId, Now, PartitionId, Status};
use nicekv_transport::Receiver;

/// A client's request that stores a large value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargePut<'a> {
    pub reference: Reference,
    /// The request as it arrived. `None`: the value was announced, and the request that stores it
    /// will follow.
    pub request: Option<&'a [u8]>,
    /// Address of the sender.
    pub from: SocketAddrV4,
    /// Address to which replies go.
    pub reply_to: SocketAddrV4,
    /// Whether the mode has a primary. Then only the primary lists the members in its reports;
    /// otherwise every member does.
    pub has_primary: bool,
}

#[derive(Clone)]
pub(super) struct Transfer {
    pub(super) reference: Reference,
    pub(super) partition: PartitionId,
    pub(super) receiver: Receiver,
    /// The newest request that stores the value, with its sender; it is handled when the value is
    /// complete. Empty while no such request has arrived.
    pub(super) request: Vec<u8>,
    pub(super) from: SocketAddrV4,
    pub(super) reply_to: SocketAddrV4,
    /// As in [`LargePut`].
    pub(super) has_primary: bool,
    /// All chunks have arrived; the disk is checking the digest.
    pub(super) is_ending: bool,
    /// At least one chunk was written to the disk.
    pub(super) is_written: bool,
}

impl Transfer {
    pub(super) fn new(now: Now, put: &LargePut<'_>, partition: PartitionId, seed: u64) -> Self {
        let LargePut { reference, request, from, reply_to, has_primary } = *put;
        Self {
            reference,
            partition,
            receiver: Receiver::new(now.boot_ns, reference.chunks(), ROOM, seed),
            request: request.unwrap_or_default().to_vec(),
            from,
            reply_to,
            has_primary,
            is_ending: false,
            is_written: false,
        }
    }

    /// The client has sent its request again, possibly for another epoch, so a report is due. No
    /// report is due if the value was announced and this is the first request that stores it.
    pub(super) fn ask_again(&mut self, now: Now, put: &LargePut<'_>) {
        if put.request.is_none() || !self.request.is_empty() {
            self.receiver.handle_probe(now.boot_ns);
        }
        if let Some(request) = put.request {
            self.request.clear();
            self.request.extend_from_slice(request);
        }
        (self.from, self.reply_to) = (put.from, put.reply_to);
    }

    /// Where reports go, and whether only the primary lists the members.
    pub(super) fn teller(&self) -> (SocketAddrV4, bool) {
        (self.reply_to, self.has_primary)
    }

    pub(super) fn next_deadline(&self) -> u64 {
        if self.is_ending { u64::MAX } else { self.receiver.next_deadline() }
    }

    /// Takes this member's report, if one is due.
    pub(super) fn poll_report(
        &mut self,
        now: Now,
        (epoch, sender, members): (Epoch, NodeId, Vec<NodeId>),
    ) -> Option<TransferReport> {
        let report = self.receiver.poll_report(now.boot_ns)?;
        let missing = report.missing.iter().map(|hole| Hole { start: hole.start, end: hole.end }).collect();
        Some(TransferReport {
            op: self.reference.name,
            partition: self.partition,
            epoch,
            sender,
            status: Status::Ok,
            members,
            prefix: report.prefix,
            end: report.end,
            limit: report.limit,
            arrived: report.arrived,
            asked: report.asked,
            chunks_per_second: report.chunks_per_second,
            held_ns: report.held_ns,
            missing,
        })
    }
}

/// The report of a transfer that has ended: the value is complete, or was refused.
pub(super) fn settled_report(
    reference: &Reference,
    (partition, epoch, sender): (PartitionId, Epoch, NodeId),
    members: Vec<NodeId>,
    status: Status,
) -> TransferReport {
    let all = if status == Status::Ok { reference.chunks() } else { 0 };
    TransferReport {
        op: reference.name,
        partition,
        epoch,
        sender,
        status,
        members,
        prefix: all,
        end: all,
        limit: all,
        arrived: all,
        asked: 0,
        chunks_per_second: 0,
        held_ns: 0,
        missing: Vec::new(),
    }
}

//! The one entry for received bytes.

use crate::control::{Assign, AssignAck, Heartbeat, HeartbeatReply, Probe, ProbeReply, Report};
use crate::header::{Header, Opcode};
use crate::quorum::{QuorumHeld, QuorumQuery, QuorumStore};
use crate::recovery::{Fetch, RecoverReply, RecoverRequest};
use crate::repair::{RepairReply, RepairRequest};
use crate::replication::{Acks, Decisions, Resend};
use crate::scrub::ScrubPage;
use crate::{DecodeError, Get, Reply, Update};

/// A received datagram, checked to the last byte. Keys and values borrow from it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is documented by the type that it holds")]
pub enum Datagram<'a> {
    Get(Get<'a>),
    Update(Update<'a>),
    Reply(Reply<'a>),
    QuorumQuery(QuorumQuery<'a>),
    QuorumStore(QuorumStore<'a>),
    QuorumHeld(QuorumHeld<'a>),
    Acks(Acks),
    Decisions(Decisions<'a>),
    Resend(Resend<'a>),
    RecoverRequest(RecoverRequest),
    RecoverReply(RecoverReply),
    Fetch(Fetch),
    RepairRequest(RepairRequest<'a>),
    RepairReply(RepairReply<'a>),
    ScrubPage(ScrubPage<'a>),
    Heartbeat(Heartbeat),
    HeartbeatReply(HeartbeatReply),
    Assign(Assign),
    AssignAck(AssignAck),
    Report(Report),
    Probe(Probe),
    ProbeReply(ProbeReply),
}

impl<'a> Datagram<'a> {
    /// Decodes a whole UDP payload, strictly.
    pub fn decode(bytes: &'a [u8]) -> Result<(Header, Self), DecodeError> {
        let (header, body) = Header::decode(bytes)?;
        let datagram = match header.opcode {
            Opcode::Get | Opcode::ForwardedGet => Self::Get(Get::decode(&header, body)?),
            Opcode::Update => Self::Update(Update::decode(&header, body)?),
            Opcode::Reply => Self::Reply(Reply::decode(&header, body)?),
            Opcode::QuorumQuery => Self::QuorumQuery(QuorumQuery::decode(&header, body)?),
            Opcode::QuorumStore => Self::QuorumStore(QuorumStore::decode(&header, body)?),
            Opcode::QuorumHeld => Self::QuorumHeld(QuorumHeld::decode(&header, body)?),
            Opcode::Acks => Self::Acks(Acks::decode(body)?),
            Opcode::Decisions => Self::Decisions(Decisions::decode(body)?),
            Opcode::Resend => Self::Resend(Resend::decode(body)?),
            Opcode::RecoverRequest => Self::RecoverRequest(RecoverRequest::decode(body)?),
            Opcode::RecoverReply => Self::RecoverReply(RecoverReply::decode(body)?),
            Opcode::Fetch => Self::Fetch(Fetch::decode(body)?),
            Opcode::RepairRequest => Self::RepairRequest(RepairRequest::decode(body)?),
            Opcode::RepairReply => Self::RepairReply(RepairReply::decode(body)?),
            Opcode::ScrubPage => Self::ScrubPage(ScrubPage::decode(body)?),
            Opcode::Heartbeat => Self::Heartbeat(Heartbeat::decode(body)?),
            Opcode::HeartbeatReply => Self::HeartbeatReply(HeartbeatReply::decode(body)?),
            Opcode::Assign => Self::Assign(Assign::decode(body)?),
            Opcode::AssignAck => Self::AssignAck(AssignAck::decode(body)?),
            Opcode::Report => Self::Report(Report::decode(body)?),
            Opcode::Probe => Self::Probe(Probe::decode(body)?),
            Opcode::ProbeReply => Self::ProbeReply(ProbeReply::decode(body)?),
        };
        Ok((header, datagram))
    }
}

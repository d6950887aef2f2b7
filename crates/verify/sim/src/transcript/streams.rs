//! Transcript lines of copying streams and of large values.

use super::{Names, describe_state, text};
use crate::network::Host;
use nicekv_proto::Datagram;
use nicekv_proto::recovery::{CopyFrame, CopySection, key_of_cursor};

impl Names {
    /// Messages between members about a damaged key.
    pub(super) fn repair(datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::RepairRequest(request) => {
                format!(
                    "epoch {}: what do you have of {}? mine is damaged",
                    request.epoch.0,
                    text(request.key)
                )
            }
            Datagram::RepairReply(reply) => {
                let state = describe_state(&reply.state);
                format!("epoch {}: {state} {}", reply.epoch.0, text(reply.key))
            }
            _ => return None,
        })
    }

    /// Messages about large values.
    pub(super) fn large(&self, datagram: &Datagram<'_>) -> Option<String> {
        Some(match datagram {
            Datagram::Chunk(chunk) => format!("{} part {} of its value", self.op(chunk.op), chunk.number),
            Datagram::TransferReport(report) => {
                let missing: Vec<String> =
                    report.missing.iter().map(|hole| format!("{}..{}", hole.start, hole.end)).collect();
                format!(
                    "epoch {}, {}: {:?}, parts up to {} of its value, none from {}, missing {missing:?}",
                    report.epoch.0,
                    self.op(report.op),
                    report.status,
                    report.prefix,
                    report.end
                )
            }
            Datagram::ReadChunks(read) => {
                let name = self.op(read.reference.name);
                format!(
                    "{} parts {} to {} of the value of {name}",
                    self.op(read.op),
                    read.first,
                    read.first + u32::from(read.count)
                )
            }
            _ => return None,
        })
    }

    /// The line of a frame of a copying stream.
    pub fn frame(&self, from: Host, to: Host, bytes: &[u8]) -> String {
        let part = |section| match section {
            CopySection::Begin => "what we have in common",
            CopySection::Clients => "the clients' records",
            CopySection::Entries => "the entries",
        };
        let what = match CopyFrame::decode(bytes) {
            Ok(CopyFrame::Request { section, since, after, .. }) => {
                let since = if since > 0 { format!(" written after {since}") } else { String::new() };
                let after = match section {
                    CopySection::Entries => key_of_cursor(after),
                    _ => Some(after).filter(|after| section == CopySection::Clients && !after.is_empty()),
                };
                let after = after.map_or_else(String::new, |after| format!(" after {}", text(after)));
                format!("copy to me {}{since}{after}", part(section))
            }
            Ok(CopyFrame::Chunk { section, more, payload, .. }) => {
                let more = if more { ", more follow" } else { "" };
                format!("here are {}, {} bytes{more}", part(section), payload.len())
            }
            Ok(CopyFrame::ValueRequest { reference, offset, .. }) => {
                format!("send me the value of {} from byte {offset}", self.op(reference.name))
            }
            Ok(CopyFrame::ValuePart { name, offset, bytes }) => {
                format!("{} bytes of the value of {} from byte {offset}", bytes.len(), self.op(name))
            }
            Err(error) => error.to_string(),
        };
        format!("{:8} => {:8}  {what}", self.host(from), self.host(to))
    }
}

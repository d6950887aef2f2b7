//! Counters for operators.

use core::net::SocketAddrV4;
use nicekv_proto::DecodeError;

/// Counts since a client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests submitted.
    pub submitted: u64,
    /// Requests whose completion was taken.
    pub completed: u64,
    /// Datagrams sent again because no answer came in time.
    pub retries: u64,
    /// Requests that waited for flow control before they were sent.
    pub waited: u64,
    /// "Busy" answers.
    pub busy: u64,
    /// Replies to ops that are no longer in flight (duplicates, or late), or of no use to them.
    pub stray_replies: u64,
    /// Chunks of large values sent, including repairs.
    pub chunks_sent: u64,
    /// Chunks of large values received and kept.
    pub chunks_received: u64,
    /// Chunks that were not requested, or were duplicates.
    pub stray_chunks: u64,
    /// Transfer reports that were invalid, late, of another epoch, or from an unknown receiver.
    pub stray_reports: u64,
    /// Slow replicas that a put dropped, because four other puts already serve them by unicast.
    pub stragglers_refused: u64,
    /// Large values with a wrong checksum.
    pub wrong_checksums: u64,
    /// Published messages dropped because earlier ones were not taken.
    pub messages_dropped: u64,
    /// Datagrams that are no well-formed replies.
    pub malformed: u64,
    /// Malformed datagrams of another wire version.
    pub other_version: u64,
    /// Source and version of the last one.
    pub other_version_from: Option<(SocketAddrV4, u8)>,
    /// Requests that went to a node directly, and that it refused because of another epoch.
    pub misdirected: u64,
}

impl Counters {
    pub(crate) fn count_malformed(&mut self, from: SocketAddrV4, error: Option<DecodeError>) {
        self.malformed += 1;
        if let Some(DecodeError::UnsupportedVersion(version)) = error {
            self.other_version += 1;
            self.other_version_from = Some((from, version));
        }
    }
}

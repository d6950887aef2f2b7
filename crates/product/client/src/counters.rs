//! What is counted.

use core::net::SocketAddrV4;
use nicekv_proto::DecodeError;

/// What a client has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests taken.
    pub submitted: u64,
    /// Requests finished.
    pub completed: u64,
    /// Datagrams sent again because no answer came in time.
    pub retries: u64,
    /// Requests that were not sent at once, because enough others were under way.
    pub waited: u64,
    /// "Busy" answers.
    pub busy: u64,
    /// Replies to ops that are not in flight any more (duplicates, or too late), or that are of no use to them.
    pub stray_replies: u64,
    /// Chunks of large values that were sent, repairs among them.
    pub chunks_sent: u64,
    /// Chunks that were kept.
    pub chunks_received: u64,
    /// Chunks that nobody has asked for, or that were there.
    pub stray_chunks: u64,
    /// Reports of transfers that are impossible, of another epoch, of nobody who is known to receive, or too late.
    pub stray_reports: u64,
    /// Slow replicas that a put did not serve alone, as four others do already.
    pub stragglers_refused: u64,
    /// Large values that came with another checksum than they should have.
    pub wrong_checksums: u64,
    /// Published messages that were dropped, as those before were not taken.
    pub messages_dropped: u64,
    /// Datagrams that are not well-formed replies.
    pub malformed: u64,
    /// Of these, messages of another wire version.
    pub other_version: u64,
    /// Where the last of these came from, and its version.
    pub stranger: Option<(SocketAddrV4, u8)>,
    /// Directed requests that a node refused, being of another epoch.
    pub misdirected: u64,
}

impl Counters {
    pub(crate) fn count_malformed(&mut self, from: SocketAddrV4, error: Option<DecodeError>) {
        self.malformed += 1;
        if let Some(DecodeError::UnsupportedVersion(version)) = error {
            self.other_version += 1;
            self.stranger = Some((from, version));
        }
    }
}

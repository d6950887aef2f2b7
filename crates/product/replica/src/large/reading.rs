//! Reads of large values by clients and members.

use super::{READS_MAX, Reader};
use crate::node::Replica;
use crate::node::host::Host;
use crate::types::StreamPeer;
use core::net::SocketAddrV4;
use nicekv_proto::large::{ANY_REPLICA, Chunk, READ_CHUNKS_MAX, RECEIVERS_ALL, ReadChunks, Reference};
use nicekv_proto::limits::CHUNK_BYTES;
use nicekv_proto::recovery::{CopyFrame, VALUE_PART_BYTES};
use nicekv_proto::{Epoch, Form, KeyDigest, NodeId, Now, OpId, PartitionId, Reply, Status};

impl Host {
    pub(super) fn queue_read(&mut self, name: OpId, offset: u32, bytes: u32, reader: Reader) {
        let token = self.storage.read_value(name, offset, bytes as usize);
        self.values.reads.push_back((token, name, reader));
    }
}

impl Replica {
    /// A client asks for chunks of a large value. Until it has shown a token for its address, it is
    /// sent at most as many bytes as it has sent (L5).
    pub(crate) fn on_read_chunks(&mut self, now: Now, from: SocketAddrV4, read: &ReadChunks) {
        let to = read.reply_to.unwrap_or(from);
        if read.replica != ANY_REPLICA && read.replica != self.host.config.node {
            return;
        }
        let token = self.host.values.token(to);
        let reply = Reply::bare(read.op, Status::NotFound);
        if !self.host.storage.values.holds(read.reference.name) {
            return self.host.reply(Some(to), &reply);
        }
        if token != read.token {
            self.host.values.counters.reads_refused += 1;
            let reference = read.reference.bytes();
            let value = Some(&reference[..]);
            return self
                .host
                .reply(Some(to), &Reply { status: Status::Ok, value, form: Form::Large, ..reply });
        }
        let Some((offset, _)) = read.reference.chunk(read.first).filter(|_| read.count <= READ_CHUNKS_MAX)
        else {
            self.host.counters.malformed += 1;
            return;
        };
        let bytes = (u32::from(read.count) * CHUNK_BYTES as u32).min(read.reference.length - offset);
        let reader = Reader::Client { to, keyspace: read.keyspace, op: read.op, first: read.first };
        self.begin_read(now, read.reference.name, offset, bytes, reader);
    }

    /// A member asks for a part of a large value that it lacks.
    pub(crate) fn on_value_request(
        &mut self,
        now: Now,
        peer: StreamPeer,
        (asker, partition, epoch): (NodeId, PartitionId, Epoch),
        reference: Reference,
        offset: u32,
    ) {
        let accepts = |slot: usize| self.partitions[slot].membership().accepts(epoch, asker);
        let is_accepted =
            matches!(peer, StreamPeer::Accepted(_)) && self.partitions.slot(partition).is_some_and(accepts);
        if !is_accepted || offset >= reference.length {
            self.host.counters.refused += 1;
            return;
        }
        if !self.host.storage.values.holds(reference.name) {
            return self
                .host
                .send_frame(peer, &CopyFrame::ValuePart { name: reference.name, offset, bytes: &[] });
        }
        let bytes = VALUE_PART_BYTES.min(reference.length - offset);
        self.begin_read(now, reference.name, offset, bytes, Reader::Member { peer, offset });
    }

    pub(super) fn begin_read(&mut self, now: Now, name: OpId, offset: u32, bytes: u32, reader: Reader) {
        self.host.storage.values.touch(now.boot_ns, name);
        if self.host.values.reads.len() >= READS_MAX {
            // Too many reads are under way: the reader asks again.
            self.host.counters.dropped += 1;
            return;
        }
        self.host.queue_read(name, offset, bytes, reader);
    }

    /// A value on disk was found to be damaged, here or by the driver: it counts as missing and is
    /// fetched from a member.
    pub fn lose_value(&mut self, now: Now, name: OpId) {
        if self.host.storage.values.holds(name) {
            self.host.values.counters.damaged += 1;
            self.host.storage.condemn_value(name);
            self.fetch_values(now);
        }
    }

    /// The disk has completed a read of a value; `bytes` is `None` if there is nothing to read or
    /// it is damaged.
    pub(crate) fn on_value_read(&mut self, now: Now, token: u64, bytes: Option<&[u8]>, is_damaged: bool) {
        let (expected, name, reader) = self.host.values.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "requests complete in order");
        let is_wrong = matches!(reader, Reader::Scrub) && !self.on_scrubbed_part(bytes);
        let is_damaged = is_damaged || is_wrong;
        if is_damaged {
            self.lose_value(now, name);
        }
        match (reader, bytes) {
            (Reader::Scrub, _) => {}
            (Reader::Member { peer, offset }, bytes) => {
                let bytes = bytes.unwrap_or_default();
                self.host.send_frame(peer, &CopyFrame::ValuePart { name, offset, bytes });
            }
            (Reader::Making { name }, bytes) => self.on_piece_read(now, name, bytes),
            (Reader::Client { to, op, .. }, None) => {
                self.host.reply(Some(to), &Reply::bare(op, Status::NotFound));
            }
            (Reader::Client { to, keyspace, op, first }, Some(bytes)) => {
                for (number, bytes) in (first..).zip(bytes.chunks(CHUNK_BYTES)) {
                    let chunk = Chunk {
                        keyspace,
                        op,
                        digest: KeyDigest::default(),
                        number,
                        mask: RECEIVERS_ALL,
                        bytes,
                    };
                    self.host.outbox.send(to, |out| chunk.encode(out));
                    self.host.values.counters.chunks_sent += 1;
                }
            }
        }
    }
}

//! Chunks of an object on their way: a few at a time, so that memory is bounded, and the next one is negotiated while others are sent.

use crate::clients::client_for;
use crate::commands::{TargetArguments, answer, keyspace};
use crate::discovery;
use crate::failure::Failure;
use crate::groups::ask;
use nicekv_chunks::{InitiatorConfig, Manifest, PutError, chunk_id};
use nicekv_client::facade::Client;
use nicekv_metadata::ClusterInfo;
use nicekv_reservation::Delivery;
use nicekv_runtime::chunks::{ChunkClient, Pending, ring_of, start_chunk_client, timing, windows};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, new_client_id};
use nicekv_wire::chunk::{ChunkId, Round};
use std::collections::VecDeque;
use std::io::Read;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Chunks of an object that are under way at once.
const UNDER_WAY_MAX: usize = 4;

/// Names of objects, and their chunks.
pub(super) struct Objects {
    names: Client,
    chunks: ChunkClient,
}

impl Objects {
    pub(super) fn open(arguments: &TargetArguments) -> Result<Self, Failure> {
        let endpoint = discovery::find(&arguments.endpoint)?;
        let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
        let known = match arguments.keyspace.as_str() {
            // Unless another one is said, the first that has names of objects.
            "0" => info.keyspaces.iter().find(|keyspace| keyspace.chunks.is_some()),
            name => Some(keyspace(&info, name)?),
        };
        let create = "`nicekv keyspace create objects --chunks multicast` makes one";
        let Some(known) = known else {
            return Err(Failure::Environment(format!("no keyspace has names of objects; {create}")));
        };
        let (Some(delivery), Some(chunks)) = (&known.chunks, &info.chunks) else {
            return Err(Failure::Environment(format!(
                "keyspace {} has no names of objects; {create}",
                known.name
            )));
        };
        let delivery = if delivery == "unicast" { Delivery::Unicast } else { Delivery::Multicast };
        let id = new_client_id().map_err(Failure::environment)?;
        let config = InitiatorConfig {
            client: id,
            copies: known.replicas,
            reservation: windows(delivery, chunks.link_bits_per_second),
            timing: timing(chunks.link_bits_per_second),
        };
        let ring = ring_of(chunks);
        let (client, _) =
            start_chunk_client(&Stop::new(), Ipv4Addr::UNSPECIFIED, ring, config, move || ask(&endpoint))
                .map_err(Failure::environment)?;
        let names = client_for(known, info.port, new_client_id().map_err(Failure::environment)?)?;
        Ok(Self { names, chunks: client })
    }

    pub(super) fn names(&self) -> &Client {
        &self.names
    }

    /// Puts what comes, in chunks of so many bytes; what it is made of then, and the lowest stamp of its chunks.
    pub(super) fn put(&self, source: &mut dyn Read, chunk_bytes: u32) -> Result<(Manifest, Round), Failure> {
        let mut manifest = Manifest { length: 0, chunk_bytes, chunks: Vec::new() };
        let mut stamp = Round(u64::MAX);
        let mut under_way: VecDeque<Pending<_, PutError>> = VecDeque::new();
        loop {
            let bytes = read_chunk(source, chunk_bytes as usize)?;
            let is_last = bytes.len() < chunk_bytes as usize;
            if !bytes.is_empty() {
                let id = chunk_id(&bytes);
                manifest.length += bytes.len() as u64;
                manifest.chunks.push(id);
                under_way.push_back(self.chunks.put(id, bytes));
            }
            while under_way.len() >= if is_last { 1 } else { UNDER_WAY_MAX } {
                let placed =
                    under_way.pop_front().expect("there is one").wait().map_err(Failure::operation)?;
                stamp = stamp.min(placed.stamp);
            }
            if is_last {
                return Ok((manifest, stamp));
            }
        }
    }

    /// Confirms what was put before the round that names have adopted by now (P8): its lowest stamp then.
    pub(super) fn confirm(&self, manifest: &Manifest) -> Result<Round, Failure> {
        let mut stamp = Round(u64::MAX);
        let mut number = 0;
        self.get(manifest, (0, manifest.length), |bytes| {
            let placed = self.chunks.put(manifest.chunks[number], bytes.into()).wait();
            stamp = stamp.min(placed.map_err(Failure::operation)?.stamp);
            number += 1;
            Ok(())
        })?;
        Ok(stamp)
    }

    /// Gets bytes from the first on, up to the end, in order.
    pub(super) fn get(
        &self,
        manifest: &Manifest,
        (first, end): (u64, u64),
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let chunk_bytes = u64::from(manifest.chunk_bytes);
        let mut wanted = (first / chunk_bytes..end.div_ceil(chunk_bytes)).filter(|_| first < end);
        let mut under_way: VecDeque<(u64, ChunkId, Pending<_, _>)> = VecDeque::new();
        loop {
            while under_way.len() < UNDER_WAY_MAX
                && let Some(number) = wanted.next()
            {
                let id = manifest.chunks[number as usize];
                under_way.push_back((number, id, self.chunks.get(id)));
            }
            let Some((number, id, got)) = under_way.pop_front() else { return Ok(()) };
            let bytes = got.wait().map_err(|error| Failure::Operation(format!("chunk {id}: {error}")))?;
            let start = number * chunk_bytes;
            if bytes.len() as u64 != chunk_bytes.min(manifest.length - start) {
                return Err(Failure::Operation(format!("chunk {id} is not as long as the manifest says")));
            }
            let from = first.saturating_sub(start) as usize;
            let to = (end - start).min(bytes.len() as u64) as usize;
            take(&bytes[from..to])?;
        }
    }
}

fn read_chunk(source: &mut dyn Read, length: usize) -> Result<Arc<[u8]>, Failure> {
    let mut bytes = Vec::with_capacity(length);
    source.take(length as u64).read_to_end(&mut bytes).map_err(Failure::environment)?;
    Ok(bytes.into())
}

//! Reading and writing objects. A few chunks are in flight at a time: enough to overlap negotiation
//! with sending, and few enough to bound memory.

use super::semaphore::{Permit, Semaphore};
use crate::admin::answer;
use crate::client::{TargetArguments, client_for, failed, keyspace};
use crate::discovery::{self, Purpose};
use crate::failure::Failure;
use crate::groups::ask;
use futures_executor::block_on;
use nicekv_client::OperationError;
use nicekv_client::facade::{Client, ClientError};
use nicekv_metadata::{ClusterInfo, KeyspaceInfo};
use nicekv_objects::reservation::Delivery;
use nicekv_objects::{InitiatorConfig, InitiatorCounters, Manifest, Placed, PutError, chunk_id};
use nicekv_proto::OpId;
use nicekv_proto::chunk::{ChunkId, Round};
use nicekv_runtime::chunks::{
    ChunkClient, ChunkClientError, Pending, ring_of, start_chunk_client, timing, windows,
};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Stop, new_client_id};
use std::collections::VecDeque;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

/// Maximum chunks in flight. For puts, of all objects together, because their reservations wait for
/// each other; for gets, of each object.
const UNDER_WAY_MAX: usize = 4;
/// How often the chunks of an object are confirmed if its put takes longer than a round of garbage
/// collection.
const CONFIRMATIONS_MAX: u32 = 3;

/// Why chunks could not be fetched.
#[derive(Debug)]
pub enum NotGot {
    /// This chunk is not available.
    Chunk(ChunkId, ChunkClientError),
    /// The function that takes the chunks failed.
    Consumer(Failure),
}

impl NotGot {
    fn into_failure(self) -> Failure {
        match self {
            Self::Chunk(id, error) => Failure::Operation(format!("chunk {id}: {error}")),
            Self::Consumer(failure) => failure,
        }
    }
}

/// A keyspace of objects.
pub struct Objects {
    names: Client,
    chunks: ChunkClient,
    /// Limits the chunks that are being put.
    permits: Semaphore,
}

impl Objects {
    pub(super) fn open(arguments: &TargetArguments, purpose: Purpose) -> Result<Self, Failure> {
        let endpoint = discovery::find(&arguments.endpoint, purpose)?;
        let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
        let known = match arguments.keyspace.as_str() {
            // Without `--keyspace`, the first keyspace of objects.
            "0" => info.keyspaces.iter().find(|keyspace| keyspace.chunks.is_some()),
            name => Some(keyspace(&info, name)?),
        };
        match known {
            Some(known) => Self::of(known, &info, endpoint),
            None => Err(no_objects("no keyspace holds objects".into())),
        }
    }

    /// The objects of a keyspace.
    pub fn of(
        known: &KeyspaceInfo,
        info: &ClusterInfo,
        endpoint: Vec<SocketAddrV4>,
    ) -> Result<Self, Failure> {
        let (Some(delivery), Some(chunks)) = (&known.chunks, &info.chunks) else {
            return Err(no_objects(format!("keyspace {} holds no objects", known.name)));
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
        Ok(Self { names, chunks: client, permits: Semaphore::new(UNDER_WAY_MAX) })
    }

    /// Sets the timeout of operations on names.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { names: self.names.with_timeout(timeout), ..self }
    }

    pub fn names(&self) -> &Client {
        &self.names
    }

    /// Counters of the chunk transfers.
    pub fn counters(&self) -> Result<InitiatorCounters, Failure> {
        self.chunks.counters().map_err(Failure::operation)
    }

    /// Stores the source in chunks of `chunk_bytes`. Returns the manifest, and the lowest stamp of
    /// the chunks.
    pub(super) fn put(&self, source: &mut dyn Read, chunk_bytes: u32) -> Result<(Manifest, Round), Failure> {
        let mut manifest = Manifest { length: 0, chunk_bytes, chunks: Vec::new() };
        let mut is_over = false;
        let stamp = self.store(|| {
            let bytes = if is_over { Arc::default() } else { read_chunk(source, chunk_bytes as usize)? };
            // A short chunk is the last; reading a pipe or terminal again after its end would wait
            // for more input.
            is_over = bytes.len() < chunk_bytes as usize;
            if bytes.is_empty() {
                return Ok(None);
            }
            let id = chunk_id(&bytes);
            manifest.length += bytes.len() as u64;
            manifest.chunks.push(id);
            Ok(Some((id, bytes)))
        })?;
        Ok((manifest, stamp))
    }

    /// Stores chunks until `next` returns `None`. Returns the lowest stamp of the chunks.
    pub fn store(
        &self,
        mut next: impl FnMut() -> Result<Option<(ChunkId, Arc<[u8]>)>, Failure>,
    ) -> Result<Round, Failure> {
        let mut stamp = Round(u64::MAX);
        let mut under_way = VecDeque::new();
        let mut finish = |(_permit, put): (Permit<'_>, Pending<Placed, PutError>)| {
            stamp = stamp.min(put.wait().map_err(Failure::operation)?.stamp);
            Ok::<_, Failure>(())
        };
        while let Some((id, bytes)) = next()? {
            let permit = loop {
                if let Some(permit) = self.permits.try_acquire() {
                    break permit;
                }
                match under_way.pop_front() {
                    Some(oldest) => finish(oldest)?,
                    None => break self.permits.acquire(),
                }
            };
            under_way.push_back((permit, self.chunks.put(id, bytes)));
        }
        under_way.into_iter().try_for_each(finish)?;
        Ok(stamp)
    }

    /// Sets a name to a manifest whose chunks have at least stamp `stamp`. If `version` is given
    /// and not the current version, returns `None`. If a round of garbage collection has begun
    /// since, `confirm` stores the chunks again and returns their lowest stamp (P9).
    pub fn name(
        &self,
        (key, manifest): (&[u8], &[u8]),
        mut stamp: Round,
        version: Option<OpId>,
        mut confirm: impl FnMut() -> Result<Round, Failure>,
    ) -> Result<Option<OpId>, Failure> {
        let mut tries = CONFIRMATIONS_MAX;
        loop {
            match block_on(self.names.put_stamped(key, manifest, stamp, version)) {
                // The stamp is too old: the chunks may have been deleted as garbage.
                Err(ClientError::Failed(OperationError::StaleStamp)) if tries > 0 => {
                    stamp = confirm()?;
                    tries -= 1;
                }
                named => return named.map_err(failed),
            }
        }
    }

    /// Stores the chunks of a manifest again, after the partitions of names have adopted a later
    /// round (P8). Returns their lowest stamp.
    pub(super) fn confirm(&self, manifest: &Manifest) -> Result<Round, Failure> {
        let mut stamp = Round(u64::MAX);
        self.fetch(manifest.chunks.iter().copied(), |id, bytes| {
            let placed = self.chunks.put(id, bytes.into()).wait();
            stamp = stamp.min(placed.map_err(Failure::operation)?.stamp);
            Ok(())
        })
        .map_err(NotGot::into_failure)?;
        Ok(stamp)
    }

    /// Fetches chunks, and passes them on in order.
    pub fn fetch(
        &self,
        ids: impl IntoIterator<Item = ChunkId>,
        mut take: impl FnMut(ChunkId, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), NotGot> {
        let mut wanted = ids.into_iter();
        let mut under_way: VecDeque<(ChunkId, Pending<_, _>)> = VecDeque::new();
        loop {
            while under_way.len() < UNDER_WAY_MAX
                && let Some(id) = wanted.next()
            {
                under_way.push_back((id, self.chunks.get(id)));
            }
            let Some((id, got)) = under_way.pop_front() else { return Ok(()) };
            let bytes = got.wait().map_err(|error| NotGot::Chunk(id, error))?;
            take(id, &bytes).map_err(NotGot::Consumer)?;
        }
    }

    /// Reads the bytes from `first` up to but not including `end`, in order.
    pub(super) fn get(
        &self,
        manifest: &Manifest,
        (first, end): (u64, u64),
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let chunk_bytes = u64::from(manifest.chunk_bytes);
        let numbers = (first / chunk_bytes..end.div_ceil(chunk_bytes)).filter(|_| first < end);
        let mut number = first / chunk_bytes;
        self.fetch(numbers.map(|number| manifest.chunks[number as usize]), |id, bytes| {
            if bytes.len() as u64 != u64::from(manifest.chunk_length(number as usize)) {
                return Err(Failure::Operation(format!("chunk {id} differs in length from the manifest")));
            }
            let start = number * chunk_bytes;
            let from = first.saturating_sub(start) as usize;
            let to = (end - start).min(bytes.len() as u64) as usize;
            number += 1;
            take(&bytes[from..to])
        })
        .map_err(NotGot::into_failure)
    }
}

/// The failure if no keyspace holds objects.
fn no_objects(why: String) -> Failure {
    Failure::Environment(format!("{why}; `nicekv keyspace create objects --chunks multicast` creates one"))
}

fn read_chunk(source: &mut dyn Read, length: usize) -> Result<Arc<[u8]>, Failure> {
    let mut bytes = Vec::with_capacity(length);
    source.take(length as u64).read_to_end(&mut bytes).map_err(Failure::environment)?;
    Ok(bytes.into())
}

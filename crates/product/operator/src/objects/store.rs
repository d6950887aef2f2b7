//! Names of objects, and chunks on their way: a few at a time, so that memory is bounded, and the next one is negotiated while others are sent.

use super::semaphore::{Turn, Turns};
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

/// Chunks that are under way at once: of what is put of all objects together, as they have their time and wait for each other; of what is got of each.
const UNDER_WAY_MAX: usize = 4;
/// An object is confirmed so often, each time that it took longer than a round of garbage collection.
const CONFIRMATIONS_MAX: u32 = 3;

/// Why not all chunks came.
#[derive(Debug)]
pub enum NotGot {
    /// This one is not to be had.
    Chunk(ChunkId, ChunkClientError),
    /// Who takes them has failed.
    Taker(Failure),
}

impl NotGot {
    /// For who wants all of them.
    fn into_failure(self) -> Failure {
        match self {
            Self::Chunk(id, error) => Failure::Operation(format!("chunk {id}: {error}")),
            Self::Taker(failure) => failure,
        }
    }
}

/// Names of objects, and their chunks.
pub struct Objects {
    names: Client,
    chunks: ChunkClient,
    /// For chunks that are put.
    turns: Turns,
}

impl Objects {
    pub(super) fn open(arguments: &TargetArguments, purpose: Purpose) -> Result<Self, Failure> {
        let endpoint = discovery::find(&arguments.endpoint, purpose)?;
        let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
        let known = match arguments.keyspace.as_str() {
            // Unless another one is said, the first that has names of objects.
            "0" => info.keyspaces.iter().find(|keyspace| keyspace.chunks.is_some()),
            name => Some(keyspace(&info, name)?),
        };
        match known {
            Some(known) => Self::of(known, &info, endpoint),
            None => Err(no_names("no keyspace has names of objects".into())),
        }
    }

    /// Those of a keyspace.
    pub fn of(
        known: &KeyspaceInfo,
        info: &ClusterInfo,
        endpoint: Vec<SocketAddrV4>,
    ) -> Result<Self, Failure> {
        let (Some(delivery), Some(chunks)) = (&known.chunks, &info.chunks) else {
            return Err(no_names(format!("keyspace {} has no names of objects", known.name)));
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
        Ok(Self { names, chunks: client, turns: Turns::new(UNDER_WAY_MAX) })
    }

    /// The same, whose names have so much time.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { names: self.names.with_timeout(timeout), ..self }
    }

    pub fn names(&self) -> &Client {
        &self.names
    }

    /// What its initiator has counted.
    pub fn counters(&self) -> Result<InitiatorCounters, Failure> {
        self.chunks.counters().map_err(Failure::operation)
    }

    /// Puts what comes, in chunks of so many bytes; what it is made of then, and the lowest stamp of its chunks.
    pub(super) fn put(&self, source: &mut dyn Read, chunk_bytes: u32) -> Result<(Manifest, Round), Failure> {
        let mut manifest = Manifest { length: 0, chunk_bytes, chunks: Vec::new() };
        let mut is_over = false;
        let stamp = self.store(|| {
            let bytes = if is_over { Arc::default() } else { read_chunk(source, chunk_bytes as usize)? };
            // A pipe that has ended is not read again.
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

    /// Puts the chunks that come, until there are no more; the lowest of their stamps.
    pub fn store(
        &self,
        mut next: impl FnMut() -> Result<Option<(ChunkId, Arc<[u8]>)>, Failure>,
    ) -> Result<Round, Failure> {
        let mut stamp = Round(u64::MAX);
        let mut under_way = VecDeque::new();
        let mut finish = |(_turn, put): (Turn<'_>, Pending<Placed, PutError>)| {
            stamp = stamp.min(put.wait().map_err(Failure::operation)?.stamp);
            Ok::<_, Failure>(())
        };
        while let Some((id, bytes)) = next()? {
            let turn = loop {
                if let Some(turn) = self.turns.try_take() {
                    break turn;
                }
                match under_way.pop_front() {
                    Some(oldest) => finish(oldest)?,
                    None => break self.turns.take(),
                }
            };
            under_way.push_back((turn, self.chunks.put(id, bytes)));
        }
        under_way.into_iter().try_for_each(finish)?;
        Ok(stamp)
    }

    /// Gives an object, whose chunks have this stamp or later ones, its name, if `version` is none or the name's; none if that is another one. If garbage was collected meanwhile `confirm` is to put
    /// its chunks once more, and to say their lowest stamp then (P9).
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
                // What of it is here is to stay.
                Err(ClientError::Failed(OperationError::StaleStamp)) if tries > 0 => {
                    stamp = confirm()?;
                    tries -= 1;
                }
                named => return named.map_err(failed),
            }
        }
    }

    /// Confirms what was put before the round that names have adopted by now (P8): its lowest stamp then.
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

    /// Gets these chunks, in order.
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
            take(id, &bytes).map_err(NotGot::Taker)?;
        }
    }

    /// Gets bytes from the first on, up to the end, in order.
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
                return Err(Failure::Operation(format!("chunk {id} is not as long as the manifest says")));
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

/// What to do where there are none.
fn no_names(why: String) -> Failure {
    Failure::Environment(format!("{why}; `nicekv keyspace create objects --chunks multicast` makes one"))
}

fn read_chunk(source: &mut dyn Read, length: usize) -> Result<Arc<[u8]>, Failure> {
    let mut bytes = Vec::with_capacity(length);
    source.take(length as u64).read_to_end(&mut bytes).map_err(Failure::environment)?;
    Ok(bytes.into())
}

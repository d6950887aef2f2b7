//! Restores a backup key by key, like a client. The chunks of an object are put before its name.

use super::chunks::{ChunkFile, needs};
use super::error::{BackupError, Damage};
use super::format::{Header, Reader, Record, StoredKeyspace};
use super::large_values::{LargeEntries, Whole};
use super::writers::{Put, Queue, Writers};
use crate::client::{client_for, failed, keyspace};
use crate::failure::Failure;
use crate::objects::Objects;
use futures_executor::block_on;
use nicekv_client::facade::Client;
use nicekv_metadata::ClusterInfo;
use nicekv_proto::{Expiry, Form};
use nicekv_runtime::{new_client_id, now};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

/// Maximum values that are put in parallel.
const PUTS_MAX: usize = 32;
/// Maximum objects that are put in parallel; each holds a chunk in memory in addition to those in
/// flight.
const OBJECTS_MAX: usize = 4;
/// Timeout of a put.
const PUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the keys of a keyspace are put.
enum Destination {
    Values(Client),
    Objects(Objects),
}

/// Destinations by the keyspace's number in the backup.
pub(super) struct Destinations(BTreeMap<u16, Destination>);

impl Destinations {
    /// Finds the destinations in a cluster that has all keyspaces of the backup.
    pub(super) fn find(
        header: &Header,
        info: &ClusterInfo,
        endpoint: &[SocketAddrV4],
    ) -> Result<Self, Failure> {
        let mut found = BTreeMap::new();
        for StoredKeyspace { id, name, .. } in &header.keyspaces {
            let known = keyspace(info, name)?;
            let destination = match known.chunks {
                Some(_) => Destination::Objects(
                    Objects::of(known, info, endpoint.to_vec())?.with_timeout(PUT_TIMEOUT),
                ),
                None => {
                    let client =
                        client_for(known, info.port, new_client_id().map_err(Failure::environment)?)?;
                    Destination::Values(client.with_timeout(PUT_TIMEOUT))
                }
            };
            found.insert(*id, destination);
        }
        Ok(Self(found))
    }

    /// Number of chunks that the cluster already had, with enough copies.
    pub(super) fn known_chunks(&self) -> Result<u64, Failure> {
        let mut known = 0;
        for destination in self.0.values() {
            if let Destination::Objects(objects) = destination {
                known += objects.counters()?.known;
            }
        }
        Ok(known)
    }

    fn put(&self, put: &Put, chunks: &ChunkFile) -> Result<(), Failure> {
        let Put { keyspace, key, value, form, expiry } = put;
        match self.0.get(keyspace) {
            Some(Destination::Values(client)) => {
                let put = async {
                    match form {
                        Form::Hash => client.put_hash(key, value, *expiry).await,
                        Form::Plain | Form::Long | Form::Large => client.put(key, value, *expiry).await,
                    }
                };
                block_on(put).map(drop).map_err(failed)
            }
            Some(Destination::Objects(objects)) => put_object(objects, key, value, chunks),
            // The header names the keyspace of every partition, as the verification has checked.
            None => Ok(()),
        }
    }
}

fn put_object(objects: &Objects, key: &[u8], value: &[u8], chunks: &ChunkFile) -> Result<(), Failure> {
    let needed = needs(value).map_err(Failure::operation)?;
    let store = || {
        let mut left = needed.iter();
        objects.store(|| {
            let next = left.next().map(|(id, _)| chunks.read(*id).map(|bytes| (*id, bytes)));
            next.transpose().map_err(Failure::environment)
        })
    };
    // No expected version: the backup overwrites an existing object, as it does other keys.
    objects.name((key, value), store()?, None, store).map(drop)
}

/// Numbers of restored and expired keys.
#[derive(Default)]
pub(super) struct Restored {
    pub(super) keys: u64,
    pub(super) expired: u64,
}

/// Restores a verified file.
pub(super) fn restore_all(
    path: &Path,
    destinations: &Destinations,
    chunks: &ChunkFile,
) -> Result<Restored, NotRestored> {
    let (values, value_puts) = Writers::new(PUTS_MAX);
    let (objects, object_puts) = Writers::new(OBJECTS_MAX);
    let read = std::thread::scope(|scope| {
        for (writers, threads) in [(&values, PUTS_MAX), (&objects, OBJECTS_MAX)] {
            for _ in 0..threads {
                scope.spawn(move || writers.run(|put| destinations.put(put, chunks)));
            }
        }
        // The threads end when the queues are dropped.
        let (value_queue, object_queue) = (values.queue(value_puts), objects.queue(object_puts));
        read_all(path, |has_objects| if has_objects { &object_queue } else { &value_queue })
    });
    let restored = read.map_err(NotRestored::File)?;
    match values.into_failure().or(objects.into_failure()) {
        Some(failure) => Err(NotRestored::Put(failure)),
        None => Ok(restored),
    }
}

/// Why the restore failed.
pub(super) enum NotRestored {
    /// Reading the file failed.
    File(BackupError),
    /// Putting a key failed.
    Put(Failure),
}

/// Reads the file, and queues every key: objects and values go to different threads.
fn read_all<'a, 'b: 'a>(path: &Path, to: impl Fn(bool) -> &'a Queue<'b>) -> Result<Restored, BackupError> {
    let (mut reader, mut restored, mut large) =
        (Reader::open(path)?, Restored::default(), LargeEntries::default());
    let (mut keyspace, now_ms) = (0, now().unix_ms);
    loop {
        let record = reader.next()?;
        match &record {
            Record::Begin(begin) => keyspace = begin.keyspace,
            Record::End(_) => return Ok(restored),
            _ => {}
        }
        let whole = large.whole(&record).map_err(|why| reader.damaged(Damage::Content(why)))?;
        for Whole { key, value, form, expiry_ms, .. } in whole {
            if expiry_ms != 0 && expiry_ms <= now_ms {
                restored.expired += 1;
                continue;
            }
            let expiry = if expiry_ms == 0 { Expiry::Never } else { Expiry::At(expiry_ms) };
            let queue = to(reader.header.objects.contains(&keyspace));
            if !queue.push(Put { keyspace, key, value, form, expiry }) {
                return Ok(restored);
            }
            restored.keys += 1;
        }
    }
}

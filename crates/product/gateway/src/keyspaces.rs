//! The list of keyspaces that a gateway serves. The thread that polls the metadata service updates
//! it, and the gateway's threads follow.

use nicekv_client::{ClientCore, Keyspace};
use nicekv_proto::{KeyspaceId, Replication};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The list of keyspaces; clones of this handle share it.
#[derive(Clone, Debug, Default)]
pub struct KnownKeyspaces(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of changes; incremented with the list locked.
    version: AtomicU64,
    keyspaces: Mutex<Vec<Keyspace>>,
    stored: Mutex<Vec<Stored>>,
}

/// The number of keys of a keyspace, as reported by nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Keys that have a value.
    pub keys: u64,
    /// Keys that have an expiry time.
    pub expiring: u64,
    /// Average expiry time of these keys, in Unix milliseconds.
    pub expiry_ms: u64,
}

impl KnownKeyspaces {
    /// A list of the given keyspaces.
    pub fn new(keyspaces: Vec<Keyspace>) -> Self {
        let (version, keyspaces) = (AtomicU64::new(1), Mutex::new(keyspaces));
        Self(Arc::new(Shared { version, keyspaces, stored: Mutex::default() }))
    }

    /// Replaces the reported key counts.
    pub fn set_stored(&self, stored: Vec<Stored>) {
        *self.0.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
    }

    /// The key counts as last reported, sorted by keyspace number.
    pub(crate) fn stored(&self) -> Vec<Stored> {
        let mut stored = self.0.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stored.sort_unstable_by_key(|stored| stored.keyspace);
        stored
    }

    /// Replaces the list. True if the change concerns clients.
    pub fn set(&self, keyspaces: Vec<Keyspace>) -> bool {
        let mut known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let what_matters = |keyspace: &Keyspace| {
            (keyspace.id, keyspace.is_hot, keyspace.partition_bits, keyspace.holds_objects)
        };
        if known.iter().map(what_matters).eq(keyspaces.iter().map(what_matters)) {
            return false;
        }
        *known = keyspaces;
        self.0.version.fetch_add(1, Ordering::Release);
        true
    }

    pub(crate) fn all(&self) -> Vec<KeyspaceId> {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|keyspace| keyspace.id).collect()
    }

    /// The first keyspace whose keys FLUSHALL cannot delete, and the reason as the end of a
    /// sentence "the keyspace has ...".
    pub(crate) fn not_flushable(&self) -> Option<(KeyspaceId, &'static str)> {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find_map(|keyspace| {
            let has = match keyspace.replication {
                _ if keyspace.holds_objects => "names of objects",
                Replication::Quorum(_) => "no primaries that list its keys, as it is replicated by quorum",
                _ => return None,
            };
            Some((keyspace.id, has))
        })
    }

    /// Whether values of this keyspace may be larger than a datagram.
    pub(crate) fn has_large_values(&self, id: KeyspaceId) -> bool {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.iter();
        all.any(|keyspace| keyspace.id == id && keyspace.has_large_values())
    }

    /// Whether PUBLISH is possible: the first keyspace must have primaries.
    pub(crate) fn can_publish(&self) -> bool {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.iter();
        all.any(|one| one.id == KeyspaceId::DEFAULT && !matches!(one.replication, Replication::Quorum(_)))
    }

    /// One more than the highest number that SELECT accepts.
    pub(crate) fn databases(&self) -> u32 {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|keyspace| u32::from(keyspace.id.0) + 1).max().unwrap_or(0)
    }
}

/// The version of the list that a thread's client currently uses.
#[derive(Debug, Default)]
pub(crate) struct FollowedKeyspaces {
    version: u64,
}

impl FollowedKeyspaces {
    /// Passes the list on to the thread's client if it has changed.
    pub(crate) fn follow(&mut self, known: &KnownKeyspaces, client: &mut ClientCore) {
        let newest = known.0.version.load(Ordering::Acquire);
        if newest != self.version {
            self.version = newest;
            client.set_keyspaces(&known.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_client::{Config, Request, SubmitError};
    use nicekv_proto::hot::Stamp;
    use nicekv_proto::placement::Vrings;
    use nicekv_proto::{ClientId, Now};

    fn keyspace(id: u16) -> Keyspace {
        Keyspace { id: KeyspaceId(id), ..Vrings::on_loopback(7400).into() }
    }

    #[test]
    fn hot_balancing_follows_the_cluster_not_the_file() {
        let of_file = Keyspace { partition_bits: Some(4), ..keyspace(0) };
        let of_cluster = Keyspace { is_hot: true, ..of_file };
        let (known, mut followed) = (KnownKeyspaces::new(vec![of_file]), FollowedKeyspaces::default());
        let mut client = ClientCore::new(Config::new(ClientId(1), of_file));
        let mut length_of_get = |followed: &mut FollowedKeyspaces| {
            followed.follow(&known, &mut client);
            let mut datagram = Vec::new();
            client.submit(Now::default(), KeyspaceId(0), Request::Get { key: b"k" }, 1).unwrap();
            client.poll_transmit(&mut datagram).unwrap();
            datagram.len()
        };
        let without_room = length_of_get(&mut followed);
        assert!(known.set(vec![of_cluster]) && !known.set(vec![of_cluster]));
        assert_eq!(length_of_get(&mut followed), without_room + Stamp::BYTES);
        assert!(known.set(vec![of_file]));
        assert_eq!(length_of_get(&mut followed), without_room);
    }

    #[test]
    fn clients_follow_changes_of_the_list() {
        let (known, mut followed) = (KnownKeyspaces::new(vec![keyspace(0)]), FollowedKeyspaces::default());
        let mut client = ClientCore::new(Config::new(ClientId(1), keyspace(0)));
        let mut refusal = |followed: &mut FollowedKeyspaces, id| {
            followed.follow(&known, &mut client);
            client.submit(Now::default(), KeyspaceId(id), Request::Get { key: b"k" }, 1).err()
        };
        let no_such = |id| Some(SubmitError::NoSuchKeyspace { keyspace: KeyspaceId(id) });
        assert_eq!(refusal(&mut followed, 16), no_such(16));
        assert!(!known.set(vec![keyspace(0)]) && known.set(vec![keyspace(0), keyspace(16)]));
        assert_eq!((refusal(&mut followed, 16), refusal(&mut followed, 0)), (None, None));
        assert_eq!((known.all(), known.databases()), (vec![KeyspaceId(0), KeyspaceId(16)], 17));
        // A request to keyspace 16, which is removed, is still in flight.
        assert!(known.set(vec![keyspace(0), keyspace(17)]));
        assert_eq!((refusal(&mut followed, 16), refusal(&mut followed, 17)), (no_such(16), None));
    }
}

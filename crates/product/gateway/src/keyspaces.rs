//! The keyspaces that a gateway serves: who finds out that there are others says so, and its threads go on with these.

use nicekv_client::{ClientCore, Keyspace};
use nicekv_proto::{KeyspaceId, Replication};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A list that whoever has a clone may replace.
#[derive(Clone, Debug, Default)]
pub struct KnownKeyspaces(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Counts the lists; written with the list locked.
    version: AtomicU64,
    keyspaces: Mutex<Vec<Keyspace>>,
    stored: Mutex<Vec<Stored>>,
}

/// What a keyspace holds, as nodes have counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Which.
    pub keyspace: KeyspaceId,
    /// Keys with a value.
    pub keys: u64,
    /// Of these, those that expire.
    pub expiring: u64,
    /// When they do on the average, in milliseconds since 1970.
    pub expiry_ms: u64,
}

impl KnownKeyspaces {
    /// These.
    pub fn new(keyspaces: Vec<Keyspace>) -> Self {
        let (version, keyspaces) = (AtomicU64::new(1), Mutex::new(keyspaces));
        Self(Arc::new(Shared { version, keyspaces, stored: Mutex::default() }))
    }

    /// The keyspaces hold this now.
    pub fn set_stored(&self, stored: Vec<Stored>) {
        *self.0.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
    }

    /// What they held when somebody said so last; in the order of their numbers.
    pub(crate) fn stored(&self) -> Vec<Stored> {
        let mut stored = self.0.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stored.sort_unstable_by_key(|stored| stored.keyspace);
        stored
    }

    /// These, as the metadata service says now. Whether there is another one, or one less, or one is otherwise for clients.
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

    /// The first keyspace whose keys FLUSHALL may not delete, and what it has.
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

    pub(crate) fn has(&self, number: i32) -> Option<KeyspaceId> {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|keyspace| keyspace.id).find(|id| i32::from(id.0) == number)
    }

    /// Whether values of this one may be too long for a datagram.
    pub(crate) fn has_large_values(&self, id: KeyspaceId) -> bool {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.iter();
        all.any(|keyspace| keyspace.id == id && keyspace.has_large_values())
    }

    /// Whether the first one has primaries, which what is published needs.
    pub(crate) fn can_publish(&self) -> bool {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.iter();
        all.any(|one| one.id == KeyspaceId::DEFAULT && !matches!(one.replication, Replication::Quorum(_)))
    }

    /// SELECT takes numbers below this one, though not all of them.
    pub(crate) fn databases(&self) -> u32 {
        let known = self.0.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|keyspace| u32::from(keyspace.id.0) + 1).max().unwrap_or(0)
    }
}

/// The list that a thread's client goes by: the one of this version.
#[derive(Debug, Default)]
pub(crate) struct FollowedKeyspaces {
    version: u64,
}

impl FollowedKeyspaces {
    /// Has the client go by the list, if that is another one.
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
    fn that_hot_keys_are_spread_is_the_clusters_to_say_and_not_a_files() {
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
    fn what_is_said_is_gone_by() {
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
        assert_eq!((known.has(16), known.has(1), known.databases()), (Some(KeyspaceId(16)), None, 17));
        // A request to the one that goes is still under way.
        assert!(known.set(vec![keyspace(0), keyspace(17)]));
        assert_eq!((refusal(&mut followed, 16), refusal(&mut followed, 17)), (no_such(16), None));
    }
}

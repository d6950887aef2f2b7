//! The server as commands see and change it.

use crate::acl::{Denial, DenialEntry, Users};
use crate::client_info::ClientInfo;
use crate::error::CommandError;
use crate::key_scan::{CursorStore, NoCursors};
use crate::script_reply::Digest;
use crate::session::Session;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_client::Topic;
use nicekv_proto::{Duration, KeyspaceId};

/// An entry of SLOWLOG.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// Sequence number of the entry.
    pub number: u64,
    /// When the command was answered.
    pub unix_s: u64,
    pub took_us: u64,
    /// Arguments; long ones are truncated.
    pub arguments: Vec<Vec<u8>>,
    pub address: String,
    /// Name of the connection.
    pub name: Vec<u8>,
}

/// A parameter of CONFIG.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub value: String,
    /// The minimum that it may be set to; `None`: it cannot be set.
    pub least: Option<i64>,
}

/// The server that runs commands, as they see it.
///
/// The default methods suit a host without connections, such as the interpreter of scripts: the
/// commands that it runs never call them.
pub trait Host {
    /// Maximum bytes of a value in a keyspace.
    fn value_limit(&self, keyspace: KeyspaceId) -> usize;

    /// The current users, and their version.
    fn users(&self) -> (Arc<Users>, u64);

    fn sha256(&self, bytes: &[u8]) -> [u8; 32];

    /// Fills `bytes` from the system's random source.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), String>;

    /// Remembers a script.
    fn add_script(&self, _source: &[u8]) -> Digest {
        [0; 40]
    }

    /// The store for cursors of SCAN.
    fn cursors(&self) -> Arc<dyn CursorStore> {
        Arc::new(NoCursors)
    }

    /// The keyspaces, in no particular order.
    fn keyspaces(&self) -> Vec<KeyspaceId> {
        Vec::new()
    }

    /// The first keyspace that FLUSHALL cannot flush, and the reason as the end of a sentence "the
    /// keyspace has ...".
    fn not_flushable(&self) -> Option<(KeyspaceId, &'static str)> {
        None
    }

    /// Whether messages can be published: the first keyspace must have primaries.
    fn can_publish(&self) -> bool {
        false
    }

    /// The script with this digest, given in upper or lower case.
    fn find_script(&self, _digest: &[u8]) -> Option<(Digest, Arc<[u8]>)> {
        None
    }

    fn has_script(&self, digest: &[u8]) -> bool {
        self.find_script(digest).is_some()
    }

    fn forget_scripts(&self) {}

    /// Replaces the users by the result of `change` for all connections, unless it fails.
    fn change_users(
        &self,
        _change: &mut dyn FnMut(&Users) -> Result<Users, CommandError>,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Whether users come from a file.
    fn has_user_file(&self) -> bool {
        false
    }

    /// Reads the file of users again. If it has errors, nothing changes, and the error names the
    /// lines.
    fn load_users(&self) -> Result<(), String> {
        Ok(())
    }

    fn note_denial(&self, _denial: Denial<'_>, _unix_ms: u64) {}

    /// The newest entries of ACL LOG.
    fn denials(&self, _count: usize) -> Vec<DenialEntry> {
        Vec::new()
    }

    fn forget_denials(&self) {}

    /// Information about this connection, part of which is from its session.
    fn client(&self, _session: &Session, _unix_ms: u64) -> ClientInfo {
        ClientInfo::default()
    }

    /// All connections.
    fn clients(&self) -> Vec<ClientInfo> {
        Vec::new()
    }

    /// Closes another connection.
    fn kill_client(&self, _id: u64) {}

    /// CLIENT NO-EVICT: sets whether this connection is closed last when memory runs out.
    fn spare_client(&self, _is_spared: bool) {}

    /// CLIENT PAUSE: holds back commands, or only writes, for this time.
    fn pause(&self, _time: Duration, _writes_only: bool) {}

    fn end_pause(&self) {}

    /// MONITOR: from now on, all commands are shown to this connection.
    fn join_monitors(&self) {}

    fn leave_monitors(&self) {}

    /// Number of subscribers of each channel and pattern of the gateway.
    fn subscribers(&self) -> BTreeMap<Topic, usize> {
        BTreeMap::new()
    }

    /// The newest entries of SLOWLOG.
    fn slow_entries(&self, _count: usize) -> Vec<SlowEntry> {
        Vec::new()
    }

    fn slow_entry_count(&self) -> usize {
        0
    }

    fn forget_slow_entries(&self) {}

    /// The parameters of CONFIG.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Sets a parameter to a new number.
    fn set_parameter(&self, _name: &str, _number: i64) {}

    /// CONFIG RESETSTAT: resets the statistics of INFO.
    fn reset_statistics(&self) {}

    /// The fields of a section of INFO; empty if there is nothing to show.
    fn info_section(&self, _name: &str, _unix_ms: u64) -> Vec<(String, String)> {
        Vec::new()
    }
}

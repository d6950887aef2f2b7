//! Opens a node's storage: the engine, the space reserve, and the log, which is replayed.

use super::durable_log::DurableLog;
use super::op_marks;
use super::space::Space;
use super::spaces::Spaces;
use super::storage::NodeStorage;
use super::storage_options::StorageOptions;
use super::values::LargeValues;
use crate::Waker;
use nicekv_proto::{DecodeError, Now};
use nicekv_replica::NodeConfig;
use nicekv_replica::Replica;
use nicekv_store::engine::DurableOptions;
use nicekv_store::values::ValueOptions;
use nicekv_store::{
    DataDirectory, DurableEngine, Engine, Files, Log, LogIdentity, LogOptions, LogPosition, MemoryEngine,
    StoreError,
};
use std::sync::Arc;
use thiserror::Error;

/// Smallest size of an engine table: smaller tables are not worth their files.
const TABLE_BYTES_MIN: u64 = 256 << 10;
/// Smallest segment of large values. A value has at most a quarter of a segment.
const VALUE_SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// Why a node's storage cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of the file of op marks.
    #[error("the file op-marks of the data directory: {0}")]
    Marks(std::io::Error),
    /// A log record is invalid, or contradicts earlier ones.
    #[error("record {position} of the log is not understood: {error}")]
    Record {
        /// Position of the record.
        position: LogPosition,
        /// Why it is invalid.
        error: DecodeError,
    },
}

/// Creates a volatile replica and its storage.
pub fn open_memory(config: NodeConfig) -> (Replica, NodeStorage) {
    (
        Replica::new(config),
        NodeStorage::new(
            Spaces::new(Box::new(MemoryEngine::new())),
            LargeValues::in_memory(),
            None,
            0,
            StorageOptions::default(),
        ),
    )
}

/// Opens the replica in `directory` in its last state. `waker` is woken when a sync is done. Sets
/// `config.storage` to the directory's id.
pub fn open_durable(
    mut config: NodeConfig,
    now: Now,
    files: Arc<dyn Files>,
    directory: DataDirectory,
    options: StorageOptions,
    waker: Waker,
) -> Result<(Replica, NodeStorage), OpenError> {
    config.storage = directory.storage_id();
    // The storage decides when to sync the engine, so the engine's own limit must not be reached
    // first.
    let engine_options = DurableOptions {
        memtable_bytes_max: 4 * options.engine_sync_bytes,
        table_bytes: (options.engine_sync_bytes / 8).max(TABLE_BYTES_MIN),
        ..DurableOptions::default()
    };
    let engine_path = directory.path().join("engine");
    // A missing engine is created only if the log shows that it never existed.
    let open_engine = || DurableEngine::open(&engine_path, engine_options);
    let engine = if DurableEngine::is_in(&engine_path) { Some(open_engine()?) } else { None };
    let identity = LogIdentity {
        cluster_id: directory.cluster_id(),
        storage_id: directory.storage_id(),
        node_id: config.node.0.into(),
    };
    let log_options = LogOptions { segment_bytes_max: options.segment_bytes_max, ..LogOptions::default() };
    let mut core = Replica::new(config);
    core.mark_ops(op_marks::open(directory.path()).map_err(OpenError::Marks)?);
    let (mut replayed, mut refused) = (0, None);
    let path = directory.path().join("log");
    let space = Space::open(files.clone(), directory.path(), options.reserve_bytes)?;
    core.set_disk_space(space.state());
    // The live content of a segment must fit into the reserve, so that it can be moved on a full
    // disk.
    let segment_bytes =
        options.reserve_bytes.clamp(VALUE_SEGMENT_BYTES_MIN, ValueOptions::default().segment_bytes);
    let value_options = ValueOptions { segment_bytes, ..ValueOptions::default() };
    let values =
        LargeValues::on_disk(files.clone(), directory.path().join("values"), identity, value_options)?;
    let found = values.found();
    if let Some(names) = &found {
        core.begin_values(names.iter().copied());
    }
    // Everything in the engine and in the large values was written to the log first.
    let has_keys = engine.as_ref().is_some_and(|engine| engine.approximate_keys() > 0);
    let has_values = found.as_ref().is_some_and(|names| !names.is_empty());
    if (has_keys || has_values) && !Log::is_in(&*files, &path)? {
        return Err(Log::missing(&path).into());
    }
    let (mut log, recovered) = Log::open(files, &path, identity, log_options, |position, record| {
        if refused.is_none() {
            replayed += 1;
            refused = core.replay(now, record).err().map(|error| OpenError::Record { position, error });
        }
    })?;
    if let Some(error) = refused {
        return Err(error);
    }
    let engine = match engine {
        Some(engine) => engine,
        // The log was trimmed: records before its first position are only in the engine.
        None if recovered.first > LogPosition(1) => return Err(DurableEngine::missing(&engine_path).into()),
        None => open_engine()?,
    };
    core.begin_durable(log.synced().0);
    if let Some(first) = values.sync_first() {
        log.sync_first(first);
    }
    let log = DurableLog::new(log, space, directory, now.after(options.trim_interval), waker)
        .map_err(StoreError::io("start a thread for", &path))?;
    let mut storage = NodeStorage::new(Spaces::open(Box::new(engine))?, values, Some(log), replayed, options);
    storage.run(now, &mut core)?;
    while storage.is_unfinished() {
        storage.run(now, &mut core)?;
    }
    Ok((core, storage))
}

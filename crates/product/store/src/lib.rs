//! Durable storage of one replica (ARCHITECTURE.md).
//!
//! ```text
//!   node thread                             sync thread
//!   ───────────                             ───────────
//!   Log::append  (memory)
//!   Log::write   (page cache) ──────────▶
//!   GroupCommit::request(position) ─────▶   one fdatasync for all that wait
//!   acknowledge  ◀──── notifier(position) ──┘
//!   Engine::put  (applied state, may lag)
//!   Engine::sync_begin / synced ──▶ Log::trim(position before sync_begin)
//! ```
//!
//! - [`log`]: the authoritative log. Records that were reported durable are found again, or opening
//!   fails.
//! - [`engine`]: applied state by (partition, key). Everything since its last finished sync is in the log.
//! - [`values`]: values longer than a datagram, written once, synced together with the log that
//!   names them.
//! - [`DataDirectory`]: identifies the directory's owner, and locks it.
//! - [`files`]: the file layer under log and data directory; [`files::Forgetful`] is an in-memory
//!   disk that loses unsynced writes. The LSM engine is the exception: its library accesses files
//!   itself.
//!
//! Payloads, keys and values are opaque bytes. The crate has no clock, no socket and no randomness.

mod data_directory;
pub mod engine;
mod error;
pub mod files;
pub mod log;
pub mod values;

pub use data_directory::{DataDirectory, Expected};
pub use engine::{DurableEngine, Engine, EngineSync, MemoryEngine, OPEN_TABLES_MAX, ScanPage};
pub use error::{StoreError, is_out_of_space};
pub use files::{Files, Forgetful, RealFiles};
pub use log::{GroupCommit, Log, LogIdentity, LogOptions, LogPosition, LogSync, Recovered, SyncFirst};
pub use values::{OPEN_SEGMENTS_MAX, ValueOptions, ValueOwner, Values};

/// Result of every operation of this crate.
pub type Result<T> = std::result::Result<T, StoreError>;

//! RESP2 and RESP3 in front of the native client: any Redis client can use the store.
//!
//! A [`Gateway`] is one thread with an event loop, without an async runtime. It owns its TCP connections,
//! the client's state machine and its uplink, so a command becomes a datagram on the same thread.
//! Several threads [share](Gateway::threads) listeners and limits. The meaning of
//! commands is in `nicekv-redis`; this crate has sockets, connections and memory.
//!
//! Read in this order: `event_loop`, `shared` and `acceptor` (what threads share), `connection` (bytes
//! to commands), `connection/issue` (commands to requests), `unanswered` and `key_conflicts` (their
//! order), `requests` (to the client and back), `memory` (limits), `host` (the gateway as commands see
//! it).
//!
//! Different from Redis on purpose (docs/COMMANDS.md has all differences):
//!
//! * Keys have at most 1,024 bytes. Values have at most 64 MiB (512 if configured), and 56 KiB in
//!   keyspaces without large values. Longer ones are refused with an error that names the limit.
//! * `MSET`, `DEL` and other commands on several keys are not atomic: each key is a separate op.
//! * A database is a keyspace: `SELECT n` selects keyspace n, and a command that a keyspace cannot
//!   execute is refused (`INCR` without a primary).
//! * The gateway remembers the last 4,096 cursors of `SCAN`. `DBSIZE` counts, and takes longer the more
//!   keys there are.
//! * A transaction or a script is one op of the partition of its keys: they need a common hash tag, such
//!   as `{user:1}:name` and `{user:1}:age`, or EXEC answers CROSSSLOT and executes nothing.
//! * A command has at most 1,048,576 arguments, of which at most 64 MiB are kept. If connections together
//!   hold too much, the largest is closed, as with `maxmemory-clients`.
//! * Arguments and values of more than 4 KiB share a memory limit: a connection that needs more waits,
//!   and is not read meanwhile. A command or reply that needs more than half of it is refused. A peer
//!   that neither sends nor reads while others wait is closed after some seconds.
//! * An update without an answer in time fails with `ERR outcome unknown`: it may have taken effect.
//! * Users come from a file ([`UserSource`]), or from `ACL SETUSER` until the process ends. There are no
//!   selectors. A failed login delays the next command.

mod acceptor;
mod clients;
mod command_statistics;
mod config;
mod connection;
mod cursors;
mod event_loop;
mod handshakes;
mod host;
mod hub;
mod information;
mod key_conflicts;
mod keyspaces;
pub mod limits;
mod listeners;
mod logged_arguments;
mod memory;
mod monitors;
mod observation;
mod outage;
mod parameters;
mod pause;
mod process;
mod requests;
mod script_cache;
mod settings;
mod shared;
mod shared_users;
mod slow_log;
mod stream;
mod subscriber_counts;
mod tls;
mod unanswered;
mod user_source;

pub use config::GatewayConfig;
pub use event_loop::Gateway;
pub use keyspaces::{KnownKeyspaces, Stored};
pub use limits::{CONNECTIONS_MAX, THREADS_MAX};
pub use listeners::Listeners;
pub use observation::{FailedRequest, GatewayMonitor, GatewayObservation};
pub use outage::note_metadata_silence;
pub use tls::TlsFiles;
pub use user_source::UserSource;

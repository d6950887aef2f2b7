//! RESP2 and RESP3 in front of the native client: any Redis client can use the store.
//!
//! A [`Gateway`] is one thread with an event loop, no async runtime: it owns its TCP connections, the client's state machine
//! and its UDP socket, so a command becomes a datagram without changing threads. Several of them [share](Gateway::threads) a listener and their
//! limits. Read in this order: [`event_loop`](Gateway), `shared` and `acceptor` (what threads have in common), `connection`, `stream` (its bytes, by TLS or not), `security` (who it is, and what it may do), `unanswered` (ordering), `parser`, `command` (the table), `handlers`, `plan` (from answers to replies), `requests`,
//! `scanning` (commands that list keys), `budget` (the memory of all connections), `permits` with `line` (that of large values), `filling` and `large_reads` (who asks for it), `pace` (who keeps others from it).
//!
//! Commands, replies and error texts are those of Redis 7.0 as far as the store has what they are about. Different on purpose:
//!
//! * Keys have at most 1,024 bytes and values at most 64 MiB (up to 512 if configured), or in keyspaces that have no large ones 56 KiB; more is refused with an error that
//!   names the limit.
//! * `MSET`, `DEL` and other commands on several keys are not atomic: each key is an op of its own.
//! * A database is a keyspace: `SELECT n` goes to keyspace n, and what a keyspace cannot do is refused (`INCR` without a primary).
//! * A cursor of `SCAN` is remembered by its gateway, the last 4,096 of them; `DBSIZE` counts, and takes longer the more there is.
//! * A transaction is one op of its keys' partition: they need a hash tag in common, `{user:1}:name` and `{user:1}:age`, or EXEC answers CROSSSLOT and executes nothing. Its commands, and its
//!   results, have 60 KiB at most each; large values that it names are read when it is done. Times of expiry count from when a command is queued. SCAN, KEYS, DBSIZE, SELECT and what else is about the connection have no
//!   place in it.
//! * A script is one op, too, with all of its keys declared; one that fails has no effect.
//! * A command has at most 1,048,576 arguments, of which at most 64 MiB are kept; connections that together hold too much are closed,
//!   the greediest first, as with `maxmemory-clients`, which has a limit of 256 MiB here unless configured otherwise.
//! * Large arguments and values, of more than 4 KiB, take no more than 256 MiB together unless configured otherwise: who needs more waits, and is not read from
//!   meanwhile. A command or a reply that needs more than half of it is refused. Who does not send, or read, while others wait is closed after some seconds.
//! * An update without an answer in time fails with `ERR outcome unknown`: it may have taken effect.
//! * Users are those of a file ([`UserSource`]), or of `ACL SETUSER` until the process ends; there are no selectors, and a refusal has the words of Redis 7.2. Who fails to log in rests before the next command.
//! * `CLIENT SETINFO` of Redis 7.2 is understood, because libraries send it.

mod acceptor;
mod answered;
mod asking;
mod bits;
mod budget;
mod caller;
mod choosing;
mod clients;
mod command;
mod config;
mod connection;
mod dump;
mod encoding;
mod error;
mod errors;
mod event_loop;
mod executing;
mod filling;
mod gathering;
mod handlers;
mod hashes;
mod hub;
mod keyspaces;
mod large_reads;
mod lcs;
mod ledger;
pub mod limits;
mod line;
mod local;
mod message;
mod monitors;
mod moving;
mod named;
mod objects;
mod observation;
mod other_types;
mod outage;
mod pace;
mod parser;
mod pause;
mod permits;
mod plan;
mod process;
mod quiet;
mod reply;
mod requests;
mod rope;
mod scanning;
mod scripting;
mod security;
mod settings;
mod shared;
mod slow_log;
mod stream;
mod subscribing;
mod tls;
mod transaction;
mod unanswered;
mod uses;
mod words;

pub use config::GatewayConfig;
pub use event_loop::{Gateway, Listeners};
pub use keyspaces::{KnownKeyspaces, Stored};
pub use limits::{CONNECTIONS_MAX, THREADS_MAX};
pub use local::{LocalCommands, Refused};
pub use observation::{FailedRequest, GatewayMonitor, GatewayObservation};
pub use outage::note_metadata_silence;
pub use security::UserSource;
pub use tls::TlsFiles;

/// How many commands `bytes` are, of which the last one ends with them. For `nicekv-instructions`, which counts what parsing costs.
#[doc(hidden)]
pub fn count_commands(bytes: &[u8]) -> usize {
    let (mut parser, mut rest, mut count) =
        (parser::Parser::new(nicekv_client::LARGE_VALUE_BYTES_MAX), bytes, 0);
    while let Ok(taken @ 1..) = parser.parse(rest) {
        rest = &rest[taken..];
        if parser.command().is_some() {
            parser.release();
            count += 1;
        }
    }
    count
}

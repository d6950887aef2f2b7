//! The program whose instructions `.ci/instructions` counts: a client, a switch and three nodes,
//! connected in memory.
//!
//! ```text
//!   measured ─▶ client_turn ─▶ switch_turn ─▶ node_turn, of each node ─▶ switch_turn ─▶ client_turn ─▶ …
//!            ─▶ engine_turn    ─▶ parser_turn
//! ```
//!
//! `valgrind --tool=callgrind` counts while `measured` runs, and reports the instructions of each
//! `…_turn`, callees included. So these functions are not inlined, and the script looks for their
//! names. Ids, seeds and the clock are constants: the counts change only with the code, the
//! compiler, or the C library.
//!
//! `nicekv-instructions LOAD` runs one load, and prints the number of ops and how often each role
//! has allocated memory. Counting adds the same number of instructions to each allocation.

mod cluster;

use cluster::{Allocations, Cluster};
use nicekv_client::LARGE_VALUE_BYTES_MAX;
use nicekv_proto::Replication;
use nicekv_redis::resp::{BufferGrant, Parser};
use nicekv_store::{Engine, MemoryEngine};
use std::process::ExitCode;

/// Ops that are counted, in batches of [`BATCH`].
const OPERATIONS: u32 = 4_096;
/// Ops in flight at once: enough that nodes process batches.
const BATCH: u32 = 16;
/// Keys that are stored before anything is counted.
const KEYS: u32 = 4_096;
const VALUE: [u8; 64] = [7; 64];

/// The key with this number.
fn key(number: u32) -> [u8; 16] {
    // Keys that follow each other in a batch are spread over the store.
    let number = number.wrapping_mul(0x9e37_79b1) % KEYS;
    let mut key = *b"key:000000000000";
    key[6..].copy_from_slice(format!("{number:010}").as_bytes());
    key
}

fn main() -> ExitCode {
    let load: &dyn Fn() = match std::env::args().nth(1).as_deref() {
        Some("get") => &|| on_cluster(Replication::Multicast, Cluster::get),
        Some("put") => &|| on_cluster(Replication::Multicast, Cluster::put),
        Some("chain-get") => &|| on_cluster(Replication::Chain, Cluster::get),
        Some("chain-put") => &|| on_cluster(Replication::Chain, Cluster::put),
        Some("engine") => &on_engine,
        Some("parser") => &on_parser,
        _ => {
            eprintln!("usage: nicekv-instructions get|put|chain-get|chain-put|engine|parser");
            return ExitCode::from(2);
        }
    };
    println!("operations {OPERATIONS}");
    load();
    ExitCode::SUCCESS
}

/// `valgrind` switches counting on by the name of this function.
#[inline(never)]
fn measured(work: impl FnOnce()) {
    work();
}

fn on_cluster(replication: Replication, call: fn(&mut Cluster, &[u8])) {
    let mut cluster = Cluster::started(replication);
    let batches = |cluster: &mut Cluster, call: fn(&mut Cluster, &[u8])| {
        for first in (0..OPERATIONS).step_by(BATCH as usize) {
            (first..first + BATCH).for_each(|number| call(cluster, &key(number)));
            cluster.run_until_answered();
        }
    };
    batches(&mut cluster, Cluster::put);
    // A first run, so that buffers have grown to their final size.
    batches(&mut cluster, call);
    cluster.take_allocations();
    measured(|| batches(&mut cluster, call));
    let Allocations { client, switch, nodes } = cluster.take_allocations();
    println!("client {client}\nswitch {switch}\nnodes {nodes}");
    assert_eq!(cluster.retries(), 0, "everything arrives at once");
}

fn on_engine() {
    let mut engine = MemoryEngine::new();
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let value = |number: u32| [number as u8; 96];
    for (key, number) in keys.iter().zip(0..) {
        engine.put(number % 32, key, &value(number)).expect("memory does not fail");
    }
    let counted = allocation_counter::measure(|| measured(|| engine_turn(&mut engine, &keys)));
    println!("get {}", counted.count_total);
}

#[inline(never)]
fn engine_turn(engine: &mut MemoryEngine, keys: &[[u8; 16]]) {
    let mut found = Vec::new();
    for (key, number) in keys.iter().zip(0u32..) {
        assert!(engine.get_into(number % 32, key, &mut found).expect("memory does not fail"));
    }
}

fn on_parser() {
    let mut commands = Vec::new();
    for number in 0..OPERATIONS {
        let (key, value) = (key(number), VALUE);
        let parts: [&[u8]; 5] = [b"*3\r\n$3\r\nSET\r\n$16\r\n", &key, b"\r\n$64\r\n", &value, b"\r\n"];
        parts.iter().for_each(|part| commands.extend_from_slice(part));
    }
    let counted = allocation_counter::measure(|| measured(|| parser_turn(&commands)));
    println!("set {}", counted.count_total);
}

#[inline(never)]
fn parser_turn(commands: &[u8]) {
    let (mut parser, mut rest, mut count) = (Parser::<NoGrant>::new(LARGE_VALUE_BYTES_MAX), commands, 0);
    while let Ok(taken @ 1..) = parser.parse(rest) {
        rest = &rest[taken..];
        if parser.command().is_some() {
            parser.release();
            count += 1;
        }
    }
    assert_eq!(count, OPERATIONS);
}

/// The commands have no large arguments, so no memory is requested for one.
#[derive(Debug)]
enum NoGrant {}

impl BufferGrant for NoGrant {
    fn bytes(&self) -> usize {
        match *self {}
    }

    fn split(&mut self, _: usize) -> Self {
        match *self {}
    }

    fn join(&mut self, other: Self) {
        match other {}
    }

    fn shrink_to(&mut self, _: usize) {
        match *self {}
    }

    fn make_dependent(&mut self) -> bool {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_gets_correct_answers() {
        for replication in [Replication::Multicast, Replication::Chain] {
            on_cluster(replication, Cluster::get);
            on_cluster(replication, Cluster::put);
        }
        on_engine();
        on_parser();
    }
}

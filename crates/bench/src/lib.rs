//! `nicekv bench`: how fast NICEKV is, beside what else one would use.
//!
//! ```text
//!   peers ─▶ lab (a cluster of its own) ──────▶ load::native ┐
//!     │                                                       ├─▶ statistics ─▶ report
//!     └────▶ redis_server, etcd_server ─▶ load::redis, etcd, echo ┘
//!   outage ─▶ lab ─▶ load::paced ─▶ statistics
//!   profile ─▶ lab ─▶ load::native, cost
//!   redis-benchmark ─▶ `nicekv up`, or a lab's gateway, redis_server ─▶ redis-benchmark, load::redis ─▶ statistics ─▶ report
//!   overload ─▶ lab ─▶ load::open ─▶ statistics
//!   tables ─▶ namespaces and a bare switch ─▶ statistics ─▶ report
//!   each ─▶ a table, lines of JSON (`report`), a chart (`plot`)
//! ```
//!
//! The rules that make a figure worth printing:
//! * Every figure of `peers` is a ratio of two things measured in the same run, one after the other, in at least [`ROUNDS_MIN`] rounds;
//!   median and spread are of the ratios within the rounds.
//! * Both sides run the same ops between the same network namespaces, through the same switch. The peer is at its best.
//! * What an op costs everybody together, in processor time, stands beside how fast it is.
//! * Every answer is checked. A run with a wrong or missing answer fails and prints no figures.

mod arguments;
mod cost;
mod error;
mod etcd_server;
mod lab;
mod load;
mod outage;
mod overload;
mod peers;
mod plot;
mod profile;
mod redis_benchmark;
mod redis_server;
mod report;
mod statistics;
mod tables;
mod workload;

pub use error::BenchError;
pub use outage::OutageArguments;
pub use overload::OverloadArguments;
pub use peers::PeersArguments;
pub use profile::ProfileArguments;
pub use redis_benchmark::RedisBenchmarkArguments;
pub use statistics::ROUNDS_MIN;
pub use tables::TablesArguments;

/// `nicekv bench NAME`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Compare with a bare UDP echo, Redis 7 and etcd, between the hosts of a lab; needs root
    Peers(PeersArguments),
    /// Kill replicas in a lab, and see for how long puts stop; needs root
    Outage(OutageArguments),
    /// Count what an op costs each role: processor time, system calls, sleeps, datagrams, forces; needs root
    Profile(ProfileArguments),
    /// Compare with Redis as redis-benchmark does, in `nicekv up` and, with --lab, from a lab's client
    RedisBenchmark(RedisBenchmarkArguments),
    /// Ask a lab for more than it can do: what is answered, and what is sent twice; needs root
    Overload(OverloadArguments),
    /// Compare a switch in the kernel with every table full and with next to nothing in them, at XDP and at tc; needs root
    Tables(TablesArguments),
}

/// Runs a bench and prints its figures. The executable must be `nicekv` itself, which starts the lab.
pub fn run(command: &BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Peers(arguments) => peers::run(arguments),
        BenchCommand::Outage(arguments) => outage::run(arguments),
        BenchCommand::Profile(arguments) => profile::run(arguments),
        BenchCommand::RedisBenchmark(arguments) => redis_benchmark::run(arguments),
        BenchCommand::Overload(arguments) => overload::run(arguments),
        BenchCommand::Tables(arguments) => tables::run(arguments),
    }
}

//! `nicekv bench`: measures NICEKV beside Redis and etcd, and reproduces the figures of papers.
//!
//! ```text
//!   session ─▶ an experiment ─▶ lab: a cluster in network namespaces          ┐
//!                  │          ─▶ redis_server, etcd_server: its peers          ├─▶ load ─▶ statistics ┐
//!                  │                                                           ┘                      ├─▶ report
//!                  └─────────▶ a simulation, or switch programs fed by hand ──────────────────────────┘
//! ```
//!
//! | experiment | runs | load |
//! | --- | --- | --- |
//! | `peers` | labs, `redis_server`, `etcd_server`, an echo | `load::{native, redis, etcd, echo, large}` |
//! | `redis_benchmark` | `nicekv up` or a lab, `redis_server` | redis-benchmark, `load::redis` |
//! | `links`, `large` | a lab, `redis_server` | `load::{large, large_redis, steady}` |
//! | `scans` | a lab, `redis_server` | `scans` |
//! | `chains`, `kernel_gets`, `hot_key`, `profile` | labs | `load::native` |
//! | `overload`, `outage` | labs | `load::{open, paced}` |
//! | `turbokv`, `kvswitch::nodes` | labs | `turbokv::load` |
//! | `replicast_lab` | a lab, `replicast_lab::hashed` | `replicast_lab::load` |
//! | `kvswitch`, `replicast_sim` | simulations with the production cores | |
//! | `tables`, `kvswitch::table1` | the switch programs without a cluster | |
//!
//! Rules of the figures:
//! * Figures of `peers` are ratios of two sides measured in the same run, one after the other, in at
//!   least [`ROUNDS_MIN`] rounds; median and spread are those of the ratios within the rounds.
//! * Both sides run the same ops between the same network namespaces, through the same switch. The
//!   peer is tuned.
//! * The processor time that an op costs the whole machine is reported beside its speed.
//! * Every answer is checked. A run with a wrong or missing answer fails and prints no figures.

mod bar_chart;
mod bridge;
mod chains;
mod cost;
mod error;
mod etcd_server;
mod hot_key;
mod hot_keys;
mod kernel_gets;
mod keyspace;
mod kvswitch;
mod lab;
mod large;
mod latencies;
mod line_chart;
mod link_bytes;
mod links;
mod load;
mod netns;
mod outage;
mod output;
mod overload;
mod parallel;
mod peers;
mod profile;
mod redis_benchmark;
mod redis_server;
mod replicast_lab;
mod replicast_sim;
mod report;
mod scans;
mod session;
mod splitmix;
mod statistics;
mod switch_links;
mod tables;
mod turbokv;
mod udp_frame;
mod workload;
mod zipf;

pub use chains::ChainsArguments;
pub use error::BenchError;
pub use hot_key::HotKeyArguments;
pub use kernel_gets::KernelGetsArguments;
pub use kvswitch::KvswitchArguments;
pub use kvswitch::nodes::NodesArguments as KvswitchNodesArguments;
pub use kvswitch::table1::Table1Arguments as KvswitchTable1Arguments;
pub use large::LargeArguments;
pub use links::LinksArguments;
pub use outage::OutageArguments;
pub use overload::OverloadArguments;
pub use peers::PeersArguments;
pub use profile::ProfileArguments;
pub use redis_benchmark::RedisBenchmarkArguments;
pub use replicast_lab::NegotiatedArguments;
pub use replicast_sim::{ReplicastArguments, ReplicastSimArguments};
pub use scans::ScansArguments;
pub use statistics::ROUNDS_MIN;
pub use tables::TablesArguments;
pub use turbokv::TurbokvArguments;

use turbokv::Figure;

/// `nicekv bench NAME`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Compare with a bare UDP echo, Redis 7 and etcd, between the hosts of a lab; needs root
    Peers(PeersArguments),
    /// Kill replicas in a lab, split, merge and move a partition: how long puts stop; needs root
    Outage(OutageArguments),
    /// Count what an op costs each role: processor time, system calls, sleeps, datagrams, fsyncs;
    /// needs root
    Profile(ProfileArguments),
    /// Compare with Redis as redis-benchmark does, in `nicekv up` and, with --lab, from a lab's
    /// client
    RedisBenchmark(RedisBenchmarkArguments),
    /// Compare durable puts along chains with puts by multicast; needs root
    Chains(ChainsArguments),
    /// Compare nodes whose kernels answer gets with nodes whose processes do; needs root
    KernelGets(KernelGetsArguments),
    /// Get one hot key, with 0 to 3 copies and with its value in the switch: throughput, time until
    /// it is spread, puts; needs root
    HotKey(HotKeyArguments),
    /// Overload a lab: goodput, and datagrams sent again; needs root
    Overload(OverloadArguments),
    /// Compare a switch in the kernel with full tables and with almost empty ones, at XDP and at
    /// tc; needs root
    Tables(TablesArguments),
    /// Count the bytes on all links, and those of primary and secondary, while 1 MB values are put
    /// (NICE Fig. 6 and 7); needs root
    Links(LinksArguments),
    /// Put and get 1 MB over links of 100 Mbit/s, with 1 to 9 replicas (NICE Fig. 4, 5 and 9), and
    /// small values beside a 64 MiB put; needs root
    Large(LargeArguments),
    /// Compare scans of 8 pieces with scans of one, and scans of everything with SCAN and MGET of
    /// Redis; needs root
    Scans(ScansArguments),
    /// Let the switch, the client or any node find the node: throughput against skew and writes
    /// (TurboKV Fig. 13); needs root
    #[command(name = "turbokv-fig13")]
    TurbokvFig13(TurbokvArguments),
    /// The same, distribution of latencies of gets, puts and scans, uniform keys (Fig. 14); needs
    /// root
    #[command(name = "turbokv-fig14")]
    TurbokvFig14(TurbokvArguments),
    /// The same, Zipf 1.2 (Fig. 15); needs root
    #[command(name = "turbokv-fig15")]
    TurbokvFig15(TurbokvArguments),
    /// Mean, median and 99th percentile of Fig. 14; needs root
    #[command(name = "turbokv-table1")]
    TurbokvTable1(TurbokvArguments),
    /// Mean, median and 99th percentile of Fig. 15; needs root
    #[command(name = "turbokv-table2")]
    TurbokvTable2(TurbokvArguments),
    /// Simulate hot keys on up to 1,024 servers: balance and throughput against skew, big values,
    /// writes and racks (KVSwitch Fig. 7)
    #[command(name = "kvswitch-fig7")]
    KvswitchFig7(KvswitchArguments),
    /// The same, how many of the hottest keys are found (Fig. 8)
    #[command(name = "kvswitch-fig8")]
    KvswitchFig8(KvswitchArguments),
    /// The same, the threshold, and the cost of copies (Fig. 9)
    #[command(name = "kvswitch-fig9")]
    KvswitchFig9(KvswitchArguments),
    /// Measure throughput, Fig. 7b and 7d, with 32 nodes of a lab, whose replies per second are
    /// limited; needs root
    #[command(name = "kvswitch-nodes")]
    KvswitchNodes(KvswitchNodesArguments),
    /// Count what the modules for hot keys add to the real programs: instructions, memory, time of
    /// a packet (KVSwitch Table 1); needs root
    #[command(name = "kvswitch-table1")]
    KvswitchTable1(KvswitchTable1Arguments),
    /// Put 1 MiB chunks over links of 100 Mbit/s to nine targets, by negotiation (Replicast-M, -H)
    /// and by hash over TCP: full links, one slow disk, one busy link; needs root
    Replicast(NegotiatedArguments),
    /// Simulate a setup of Replicast, frame by frame: throughput, disks' time and latency, beside
    /// the paper's figures
    ReplicastSim(ReplicastSimArguments),
    /// Simulate Replicast at the paper's scale, frame by frame: throughput, disks' time and latency
    /// of M, H and uch-ccp with disks of 400 MB/s (Replicast Table 2)
    #[command(name = "table2", visible_alias = "replicast-table2")]
    ReplicastTable2(ReplicastArguments),
    /// The same with disks of 1,000 MB/s (Table 3)
    #[command(name = "table3", visible_alias = "replicast-table3")]
    ReplicastTable3(ReplicastArguments),
    /// The same, requests that meet a tentative reservation (Table 5)
    #[command(name = "table5", visible_alias = "replicast-table5")]
    ReplicastTable5(ReplicastArguments),
    /// The same, latencies of 16K chunks of 30 initiators, one after the other (Fig. 8)
    #[command(name = "fig8", visible_alias = "replicast-fig8")]
    ReplicastFig8(ReplicastArguments),
    /// The same, throughput with 128K chunks (Fig. 9)
    #[command(name = "fig9", visible_alias = "replicast-fig9")]
    ReplicastFig9(ReplicastArguments),
    /// The same, throughput with 16K chunks (Fig. 10)
    #[command(name = "fig10", visible_alias = "replicast-fig10")]
    ReplicastFig10(ReplicastArguments),
    /// The same, sorted latencies of 16K chunks (Fig. 11)
    #[command(name = "fig11", visible_alias = "replicast-fig11")]
    ReplicastFig11(ReplicastArguments),
    /// The same, throughput with 128K chunks of 30 initiators (Fig. 12)
    #[command(name = "fig12", visible_alias = "replicast-fig12")]
    ReplicastFig12(ReplicastArguments),
    /// The same, throughput with 1M chunks of 30 initiators (Fig. 13)
    #[command(name = "fig13", visible_alias = "replicast-fig13")]
    ReplicastFig13(ReplicastArguments),
}

/// Runs a bench and prints its figures. It finds `nicekv` and `nicekv-lab` beside this program, or
/// in `PATH`.
pub fn run(command: &BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Peers(arguments) => peers::run(arguments),
        BenchCommand::Outage(arguments) => outage::run(arguments),
        BenchCommand::Profile(arguments) => profile::run(arguments),
        BenchCommand::RedisBenchmark(arguments) => redis_benchmark::run(arguments),
        BenchCommand::Chains(arguments) => chains::run(arguments),
        BenchCommand::KernelGets(arguments) => kernel_gets::run(arguments),
        BenchCommand::HotKey(arguments) => hot_key::run(arguments),
        BenchCommand::Overload(arguments) => overload::run(arguments),
        BenchCommand::Tables(arguments) => tables::run(arguments),
        BenchCommand::Links(arguments) => links::run(arguments),
        BenchCommand::Large(arguments) => large::run(arguments),
        BenchCommand::Scans(arguments) => scans::run(arguments),
        BenchCommand::TurbokvFig13(arguments) => turbokv::run(Figure::Fig13, arguments),
        BenchCommand::TurbokvFig14(arguments) => turbokv::run(Figure::Fig14, arguments),
        BenchCommand::TurbokvFig15(arguments) => turbokv::run(Figure::Fig15, arguments),
        BenchCommand::TurbokvTable1(arguments) => turbokv::run(Figure::Table1, arguments),
        BenchCommand::TurbokvTable2(arguments) => turbokv::run(Figure::Table2, arguments),
        BenchCommand::KvswitchFig7(arguments) => kvswitch::run(kvswitch::Figure::Fig7, arguments),
        BenchCommand::KvswitchFig8(arguments) => kvswitch::run(kvswitch::Figure::Fig8, arguments),
        BenchCommand::KvswitchFig9(arguments) => kvswitch::run(kvswitch::Figure::Fig9, arguments),
        BenchCommand::KvswitchNodes(arguments) => kvswitch::nodes::run(arguments),
        BenchCommand::KvswitchTable1(arguments) => kvswitch::table1::run(arguments),
        BenchCommand::Replicast(arguments) => replicast_lab::run(arguments),
        BenchCommand::ReplicastSim(arguments) => replicast_sim::simulate(arguments),
        BenchCommand::ReplicastTable2(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Table2, arguments)
        }
        BenchCommand::ReplicastTable3(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Table3, arguments)
        }
        BenchCommand::ReplicastTable5(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Table5, arguments)
        }
        BenchCommand::ReplicastFig8(arguments) => replicast_sim::run(replicast_sim::Figure::Fig8, arguments),
        BenchCommand::ReplicastFig9(arguments) => replicast_sim::run(replicast_sim::Figure::Fig9, arguments),
        BenchCommand::ReplicastFig10(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Fig10, arguments)
        }
        BenchCommand::ReplicastFig11(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Fig11, arguments)
        }
        BenchCommand::ReplicastFig12(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Fig12, arguments)
        }
        BenchCommand::ReplicastFig13(arguments) => {
            replicast_sim::run(replicast_sim::Figure::Fig13, arguments)
        }
    }
}

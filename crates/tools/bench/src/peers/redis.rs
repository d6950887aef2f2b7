//! The rows beside Redis.

use super::pair::Peer;
use super::{Bench, NODES, PEER_PORT, Target};
use crate::cost::MachineTime;
use crate::error::Result;
use crate::lab::{CLIENT, Engine, Lab};
use crate::load::native::{PRELOAD_TIMEOUT, WARM_UP};
use crate::load::redis::RedisLoad;
use crate::load::{Limits, Measured};
use crate::netns::Hosts;
use crate::redis_server::{self, Group, RedisServer};
use crate::workload::{KEYS, Sequence, Work};
use serde_json::{Map, Value};
use std::time::Duration;

/// Redis servers under the bench's own load, which asks the first of them.
struct Redis {
    load: RedisLoad,
    work: Work,
    #[allow(dead_code, reason = "ended when they are dropped, after the load")]
    servers: Vec<RedisServer>,
}

/// One server under `redis-benchmark`.
struct Benchmarked<'a> {
    lab: &'a Lab,
    server: RedisServer,
    options: Vec<String>,
    /// Ops per second, by which the length of a run is chosen.
    expected_rate: f64,
}

impl Bench<'_> {
    /// P2 and P3: one server, under the load generator that measures the higher rate.
    pub(super) fn start_redis_for_gets<'a>(
        &self,
        target: &Target,
        lab: &'a Lab,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer + 'a>> {
        let mut servers = self.start_redis(lab.hosts(), 1, target.engine)?;
        let mut load = connect(lab, &servers, target)?;
        load.run(Sequence::new(Work::Preload, 0), self.session.limits(PRELOAD_TIMEOUT))?;
        let own = |load: &mut RedisLoad, duration| {
            load.run(Sequence::new(Work::Get, 0), self.session.limits(duration))
        };
        own(&mut load, WARM_UP)?;
        let own_rate = own(&mut load, self.session.round_time())?.throughput();
        let server = servers.pop().expect("started above");
        let options = redis_server::options(target.callers, target.at_once, KEYS);
        let benchmarked = Benchmarked { lab, server, options, expected_rate: own_rate };
        let benchmark_rate = benchmarked.rate(benchmarked.gets(self.session.round_time()))?;
        let is_own = own_rate >= benchmark_rate;
        let chosen = if is_own { "own" } else { "redis-benchmark" };
        eprintln!(
            "redis under the bench's load: {own_rate:.0} op/s, under redis-benchmark: {benchmark_rate:.0}; using {chosen}"
        );
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        parameters.insert("peer_load".into(), chosen.into());
        if is_own {
            Ok(Box::new(Redis { load, work: Work::Get, servers: vec![benchmarked.server] }))
        } else {
            Ok(Box::new(Benchmarked { expected_rate: benchmark_rate, ..benchmarked }))
        }
    }

    /// P4 and P5.
    pub(super) fn start_redis_for_puts(
        &self,
        target: &Target,
        lab: &Lab,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer>> {
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        let servers = self.start_redis(lab.hosts(), NODES, target.engine)?;
        let load = connect(lab, &servers, target)?;
        Ok(Box::new(Redis { load, work: Work::Put, servers }))
    }

    /// A primary and its replicas, each on a node's host.
    pub(super) fn start_redis(&self, hosts: &Hosts, count: u8, engine: Engine) -> Result<Vec<RedisServer>> {
        let group = Group { count, port: PEER_PORT, durable: engine == Engine::Durable };
        group.start(hosts, CLIENT, self.session.directory(), &self.session.stop)
    }
}

impl Peer for Redis {
    fn run(&mut self, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        self.load.run(Sequence::new(self.work, seed), limits)
    }
}

impl Benchmarked<'_> {
    fn gets(&self, duration: Duration) -> u64 {
        (self.expected_rate * duration.as_secs_f64()) as u64
    }

    /// Gets per second; 0 if `redis-benchmark` is not installed.
    fn rate(&self, gets: u64) -> Result<f64> {
        let server = self.server.address();
        let run = || redis_server::benchmark(server, "get", gets, &self.options);
        Ok(self.lab.inside(CLIENT, run)??.unwrap_or(0.0))
    }
}

impl Peer for Benchmarked<'_> {
    fn run(&mut self, _seed: u64, limits: Limits<'_>) -> Result<Measured> {
        let (operations, before) = (self.gets(limits.duration), MachineTime::now());
        Ok(Measured::at_rate(operations, self.rate(operations)?, before))
    }
}

/// Opens one connection per caller to the first server. A put waits until all the other servers
/// have acknowledged it.
fn connect(lab: &Lab, servers: &[RedisServer], target: &Target) -> Result<RedisLoad> {
    let wait_for = (servers.len() > 1).then_some(servers.len() - 1);
    let server = servers[0].address();
    let load = lab.client(CLIENT, |_| RedisLoad::connect(server, target.callers, wait_for))?;
    Ok(load.pipelined(target.at_once))
}

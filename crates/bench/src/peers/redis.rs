//! The rows beside Redis.

use super::{Bench, CLIENT, Figures, NODES, PEER_PORT, PRELOAD_TIMEOUT, Target, WARM_UP};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::{Engine, inside};
use crate::load::native::NativeLoad;
use crate::load::redis::RedisLoad;
use crate::load::{Limits, Measured};
use crate::redis_server::{self, RedisServer, Role};
use crate::workload::{KEYS, Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Map, Value};
use std::net::SocketAddrV4;
use std::time::Duration;

impl Bench<'_> {
    /// P2 and P3, beside one server under the load generator that gets more out of it.
    pub(super) fn beside_redis_gets(
        &self,
        target: &Target,
        native: &mut NativeLoad,
        parameters: &mut Map<String, Value>,
    ) -> Result<Figures> {
        let servers = self.start_redis(1, target.engine)?;
        self.preload(native)?;
        let mut load = connect(&servers, target)?;
        load.run(Sequence::new(Work::Preload, 0), self.limits(PRELOAD_TIMEOUT))?;

        let mut own = |seed, limits: Limits<'_>| load.run(Sequence::new(Work::Get, seed), limits);
        own(0, self.limits(WARM_UP))?;
        let own_rate = own(0, self.limits(self.round_time()))?.throughput();
        let server = servers[0].address();
        let gets = |duration: Duration| (own_rate * duration.as_secs_f64()) as u64;
        let options = redis_server::options(target.callers, target.at_once, KEYS);
        let benchmark = |gets| inside(CLIENT, || redis_server::benchmark(server, "get", gets, &options))?;
        let benchmark_rate = benchmark(gets(self.round_time()))?.unwrap_or(0.0);
        let is_own = own_rate >= benchmark_rate;
        let chosen = if is_own { "own" } else { "redis-benchmark" };
        eprintln!(
            "redis under our load: {own_rate:.0} op/s, under redis-benchmark: {benchmark_rate:.0}; using {chosen}"
        );
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        parameters.insert("peer_load".into(), chosen.into());
        if is_own {
            return self.alternate(target, Work::Get, native, &mut own);
        }
        let mut other = |_, limits: Limits<'_>| {
            let (operations, before) = (gets(limits.duration), MachineTime::now());
            let rate = benchmark(operations)?.unwrap_or(0.0);
            Ok(Measured::at_rate(operations, rate, before))
        };
        self.alternate(target, Work::Get, native, &mut other)
    }

    /// P4 and P5.
    pub(super) fn beside_redis_puts(
        &self,
        target: &Target,
        native: &mut NativeLoad,
        parameters: &mut Map<String, Value>,
    ) -> Result<Figures> {
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        let servers = self.start_redis(NODES, target.engine)?;
        let mut load = connect(&servers, target)?;
        let mut peer = |seed, limits: Limits<'_>| load.run(Sequence::new(Work::Put, seed), limits);
        self.alternate(target, Work::Put, native, &mut peer)
    }

    /// A primary and its replicas, each on a node's host.
    fn start_redis(&self, count: u8, engine: Engine) -> Result<Vec<RedisServer>> {
        let address = |index| SocketAddrV4::new(Host::Node(index).address(), PEER_PORT);
        let start = |index| {
            let primary = (index > 0).then(|| address(0));
            let role = Role { address: address(index), primary, durable: engine == Engine::Durable };
            inside(Host::Node(index), || RedisServer::start(role, self.directory.path()))?
        };
        let mut servers = (0..count).map(start).collect::<Result<Vec<_>>>()?;
        // Asked from where the load will come from: the answers pass the switch.
        let ready = || servers[0].wait_until_ready(usize::from(count) - 1, &self.stop);
        inside(CLIENT, ready)??;
        Ok(servers)
    }
}

/// One connection to the first server per caller; with others, an op waits for all of them.
fn connect(servers: &[RedisServer], target: &Target) -> Result<RedisLoad> {
    let wait_for = (servers.len() > 1).then_some(servers.len() - 1);
    let server = servers[0].address();
    let connect = || RedisLoad::connect(server, target.callers, wait_for);
    let load = inside(CLIENT, connect)?.map_err(BenchError::system("connect to redis"))?;
    Ok(load.pipelined(target.at_once))
}

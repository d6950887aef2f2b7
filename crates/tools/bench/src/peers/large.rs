//! The rows of large values, beside Redis.

use super::pair::Peer;
use super::{Bench, NODES, Place, Target};
use crate::bridge::Bridge;
use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Lab};
use crate::load::large_redis::LargeRedis;
use crate::load::native::PRELOAD_TIMEOUT;
use crate::load::{Limits, Measured};
use crate::redis_server::RedisServer;
use crate::workload::Work;
use nicekv_lab::topology::Host;
use serde_json::{Map, Value};

/// Redis servers, and the load, which asks the first of them.
struct Large {
    load: LargeRedis,
    target: Target,
    #[allow(dead_code, reason = "ended when they are dropped, after the load")]
    servers: Vec<RedisServer>,
    #[allow(dead_code, reason = "removed when it is dropped, after the servers")]
    bridge: Option<Bridge>,
}

impl Bench<'_> {
    /// P11, L1 and L2.
    pub(super) fn start_large_redis(
        &self,
        target: &Target,
        lab: &Lab,
        place: Place,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer>> {
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        let members = || (0..NODES).map(Host::Node).chain([CLIENT]).collect();
        let bridge = (place == Place::Bridge).then(|| Bridge::between(members())).transpose()?;
        let hosts = bridge.as_ref().map_or(lab.hosts(), Bridge::hosts);
        let count = if target.work() == Work::Get { 1 } else { NODES };
        let servers = self.start_redis(hosts, count, target.engine)?;
        let (address, replicas) = (servers[0].address(), usize::from(count) - 1);
        let connect = || LargeRedis::connect(address, target.value_bytes(), replicas);
        let mut load = hosts.inside(CLIENT, connect)?.map_err(BenchError::system("connect to redis"))?;
        if target.work() == Work::Get {
            load.run(target.preload(), self.session.limits(PRELOAD_TIMEOUT))?;
        }
        Ok(Box::new(Large { load, target: *target, servers, bridge }))
    }
}

impl Peer for Large {
    fn run(&mut self, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        self.load.run(self.target.sequence(seed), limits)
    }
}

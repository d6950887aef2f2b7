//! The row beside etcd.

use super::pair::Peer;
use super::{Bench, CLIENT, NODES, Target, WARM_UP};
use crate::error::{BenchError, Result};
use crate::etcd_server::EtcdCluster;
use crate::lab::Lab;
use crate::load::etcd::EtcdLoad;
use crate::load::{Limits, Measured};
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Map, Value};

/// Connections that the callers may share. Few need fewer system calls, many let the server's threads work apart.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];

/// P6's peer: three members, whose leader is asked, over as many connections as it does best with.
struct Etcd {
    load: EtcdLoad,
    #[allow(dead_code, reason = "ended when it is dropped, after the load")]
    cluster: EtcdCluster,
}

impl Bench<'_> {
    pub(super) fn start_etcd(
        &self,
        target: &Target,
        lab: &Lab,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer>> {
        let hosts: Vec<Host> = (0..NODES).map(Host::Node).collect();
        let mut cluster = EtcdCluster::start(lab, &hosts, self.directory.path())?;
        let leader = lab.inside(CLIENT, || cluster.wait_until_ready(&self.stop))??;
        let mut best: Option<(f64, usize, EtcdLoad)> = None;
        for connections in CONNECTIONS {
            let connect = || EtcdLoad::connect(leader, connections, target.callers);
            let mut load = lab.inside(CLIENT, connect)?.map_err(BenchError::system("connect to etcd"))?;
            load.run(Sequence::new(Work::Put, 0), self.limits(WARM_UP))?;
            let rate = load.run(Sequence::new(Work::Put, 0), self.limits(self.round_time()))?.throughput();
            eprintln!("etcd over {connections} connections: {rate:.0} op/s");
            if best.as_ref().is_none_or(|(most, ..)| rate > *most) {
                best = Some((rate, connections, load));
            }
        }
        let (_, connections, load) = best.expect("there are numbers of connections");
        parameters.insert("peer_version".into(), self.etcd_version.clone().into());
        parameters.insert("peer_connections".into(), connections.into());
        Ok(Box::new(Etcd { load, cluster }))
    }
}

impl Peer for Etcd {
    fn run(&mut self, seed: u64, limits: Limits<'_>) -> Result<Measured> {
        self.load.run(Sequence::new(Work::Put, seed), limits)
    }
}

//! The row beside etcd.

use super::pair::Peer;
use super::{Bench, NODES, Target};
use crate::error::Result;
use crate::etcd_server::EtcdCluster;
use crate::lab::{CLIENT, Lab};
use crate::load::etcd::EtcdLoad;
use crate::load::native::WARM_UP;
use crate::load::{Limits, Measured};
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Map, Value};

/// Numbers of connections to try. Few need fewer system calls, many spread over the server's
/// threads.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];

/// P6's peer: three members. The load asks the leader, over the number of connections that gives
/// the best rate.
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
        let mut cluster = EtcdCluster::start(lab, &hosts, self.session.directory())?;
        let leader = lab.inside(CLIENT, || cluster.wait_until_ready(&self.session.stop))??;
        let mut best: Option<(f64, usize, EtcdLoad)> = None;
        for connections in CONNECTIONS {
            let mut load = lab.client(CLIENT, |_| EtcdLoad::connect(leader, connections, target.callers))?;
            load.run(Sequence::new(Work::Put, 0), self.session.limits(WARM_UP))?;
            let limits = self.session.limits(self.session.round_time());
            let rate = load.run(Sequence::new(Work::Put, 0), limits)?.throughput();
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

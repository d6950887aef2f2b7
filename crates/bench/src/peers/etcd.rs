//! The row beside etcd.

use super::{Bench, CLIENT, Figures, NODES, Target, WARM_UP};
use crate::error::{BenchError, Result};
use crate::etcd_server::EtcdCluster;
use crate::lab::inside;
use crate::load::Limits;
use crate::load::etcd::EtcdLoad;
use crate::load::native::NativeLoad;
use crate::workload::{Sequence, Work};
use nicekv_lab::topology::Host;
use serde_json::{Map, Value};

/// Connections that the callers may share. Few need fewer system calls, many let the server's threads work apart.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];

impl Bench<'_> {
    /// P6, beside three members whose leader is asked, over as many connections as it does best with.
    pub(super) fn beside_etcd(
        &self,
        target: &Target,
        native: &mut NativeLoad,
        parameters: &mut Map<String, Value>,
    ) -> Result<Figures> {
        let hosts: Vec<Host> = (0..NODES).map(Host::Node).collect();
        let mut cluster = EtcdCluster::start(&hosts, self.directory.path())?;
        let leader = inside(CLIENT, || cluster.wait_until_ready(&self.stop))??;
        let mut best: Option<(f64, usize, EtcdLoad)> = None;
        for connections in CONNECTIONS {
            let connect = || EtcdLoad::connect(leader, connections, target.callers);
            let mut load = inside(CLIENT, connect)?.map_err(BenchError::system("connect to etcd"))?;
            load.run(Sequence::new(Work::Put, 0), self.limits(WARM_UP))?;
            let rate = load.run(Sequence::new(Work::Put, 0), self.limits(self.round_time()))?.throughput();
            eprintln!("etcd over {connections} connections: {rate:.0} op/s");
            if best.as_ref().is_none_or(|(most, ..)| rate > *most) {
                best = Some((rate, connections, load));
            }
        }
        let (_, connections, mut load) = best.expect("there are numbers of connections");
        parameters.insert("peer_version".into(), self.etcd_version.clone().into());
        parameters.insert("peer_connections".into(), connections.into());
        let mut peer = |seed, limits: Limits<'_>| load.run(Sequence::new(Work::Put, seed), limits);
        self.alternate(target, Work::Put, native, &mut peer)
    }
}

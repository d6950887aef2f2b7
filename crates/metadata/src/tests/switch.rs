//! A switch as the metadata service sees it: an agent behind a connection that may break.

use nicekv_dataplane::control::{ControlReply, ControlRequest, SwitchAgent};
use nicekv_dataplane::{HostId, Router, TableSet};
use nicekv_wire::{NodeId, PartitionId};

use crate::Config;

pub(super) struct Switch {
    agent: SwitchAgent<Router>,
    /// In force.
    pub(super) tables: Option<TableSet>,
    pub(super) connected: bool,
    /// Installs nothing, as if a table were full.
    pub(super) is_full: bool,
    /// Counts connections: what was sent over an older one is lost.
    pub(super) connection: u64,
}

fn agent(config: &Config) -> SwitchAgent<Router> {
    SwitchAgent::new(Router::new(config.vrings()).unwrap(), 0)
}

impl Switch {
    pub(super) fn new(config: &Config) -> Self {
        Self { agent: agent(config), tables: None, connected: false, is_full: false, connection: 0 }
    }

    /// The agent starts anew, without tables.
    pub(super) fn restart(&mut self, config: &Config) {
        (self.agent, self.tables) = (agent(config), None);
    }

    pub(super) fn handle(&mut self, request: ControlRequest) -> ControlReply {
        let reply = match request {
            ControlRequest::Install { tables, .. } if self.is_full => {
                let reason = "table division is full".into();
                ControlReply::Failed { generation: tables.generation, reason }
            }
            request => self.agent.handle(request),
        };
        self.tables = self.agent.backend_mut().tables().cloned();
        reply
    }

    /// A client asks so often for what is at this address.
    pub(super) fn ask(&mut self, address: [u8; 4], times: u64) {
        for _ in 0..times {
            let _counted = self.agent.backend_mut().route([10, 20, 2, 1], address, None);
        }
    }

    pub(super) fn routes(&self, partition: PartitionId, node: NodeId) -> bool {
        let Some(tables) = &self.tables else { return false };
        let (partition, host) = (partition.0, HostId(node.0));
        tables.unicast.iter().any(|entry| entry.partition == partition && entry.host == host)
            || tables.division.iter().any(|entry| entry.partition == partition && entry.host == host)
    }
}

//! A switch as the metadata service sees it: an agent behind a connection that may be lost.

use nicekv_proto::hot::{HotConfirm, HotLease, HotValue, Stamp};
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Get, KeyDigest, KeyspaceId, NodeId, OpId, PartitionId};
use nicekv_switch::control::{ControlReply, ControlRequest, SwitchAgent};
use nicekv_switch::{DatagramVerdict, HostId, HotTable, Ingress, Router, TableSet};
use std::net::SocketAddrV4;

use crate::Config;

/// The key that all gets name.
const KEY: &[u8] = b"key";
/// Padding that makes gets as long as their replies.
const PADDING: usize = 64;

pub(super) struct Switch {
    agent: SwitchAgent<Router>,
    /// The tables in force.
    pub(super) tables: Option<TableSet>,
    pub(super) connected: bool,
    /// Whether the switch refuses all tables, as if one were full.
    pub(super) is_full: bool,
    /// The switch refuses tables with more unicast entries, although it reports a larger capacity.
    pub(super) unicast_max: usize,
    /// The ports that the switch has and reports; `None`: it needs no ports.
    pub(super) ports: Option<Vec<u16>>,
    /// Whether the switch refuses all requests about hot keys.
    pub(super) has_no_hot_keys: bool,
    /// Number of connections so far. Messages sent over an older connection are lost.
    pub(super) connection: u64,
}

fn agent(config: &Config) -> SwitchAgent<Router> {
    SwitchAgent::new(Router::new(config.vrings()).unwrap(), 0)
}

impl Switch {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            agent: agent(config),
            tables: None,
            connected: false,
            is_full: false,
            unicast_max: usize::MAX,
            ports: None,
            has_no_hot_keys: false,
            connection: 0,
        }
    }

    /// Restarts the agent, without tables.
    pub(super) fn restart(&mut self, config: &Config) {
        (self.agent, self.tables) = (agent(config), None);
    }

    pub(super) fn handle(&mut self, request: ControlRequest) -> ControlReply {
        let is_of_hot_keys = matches!(
            request,
            ControlRequest::SetHot { .. } | ControlRequest::ChangeHot { .. } | ControlRequest::ReadHot { .. }
        );
        let reply = match request {
            request if is_of_hot_keys && self.has_no_hot_keys => {
                ControlReply::HotFailed { term: request.term(), reason: "no table of hot keys".into() }
            }
            ControlRequest::Install { tables, .. } if self.is_full => {
                let reason = "table division is full".into();
                ControlReply::Failed { generation: tables.generation, reason }
            }
            ControlRequest::Install { tables, .. } if self.why_refused(&tables).is_some() => {
                let reason = self.why_refused(&tables).unwrap_or_default();
                ControlReply::Failed { generation: tables.generation, reason }
            }
            request => self.agent.handle(request),
        };
        self.tables = self.agent.backend_mut().tables().cloned();
        reply
    }

    fn why_refused(&self, tables: &TableSet) -> Option<String> {
        if tables.unicast.len() > self.unicast_max {
            return Some("no memory for unicast_vring".into());
        }
        let ports = self.ports.as_ref()?;
        tables.validate_ports(|port| ports.contains(&port)).err().map(|error| error.to_string())
    }

    /// A client sends `times` gets to this address.
    pub(super) fn ask(&mut self, address: [u8; 4], times: u64) {
        for _ in 0..times {
            let _counted = self.agent.backend_mut().route([10, 20, 2, 1], address, None);
        }
    }

    /// A client sends `times` gets of a key, with room for a stamp. Returns the hosts for which
    /// they leave.
    pub(super) fn get(
        &mut self,
        vring: SocketAddrV4,
        keyspace: KeyspaceId,
        digest: KeyDigest,
        times: u64,
    ) -> Vec<HostId> {
        let from = SocketAddrV4::new([10, 20, 2, 1].into(), 9999);
        let (op, key) = (OpId { client: ClientId(1), sequence: 1 }, KEY);
        let mut bytes = Vec::new();
        Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: PADDING }
            .encode(&mut bytes);
        leave_room_for_stamp(&mut bytes);
        let mut get =
            |_| match self.agent.backend_mut().process(0, Ingress::Socket, from, vring, &mut bytes.clone()) {
                DatagramVerdict::Unicast(hop) => hop.host(),
                _ => None,
            };
        (0..times).filter_map(&mut get).collect()
    }

    /// A holder confirms a copy that has all updates so far.
    pub(super) fn confirm(
        &mut self,
        from: SocketAddrV4,
        vring: SocketAddrV4,
        key: (KeyspaceId, KeyDigest),
        instance: u64,
    ) {
        let seen = self.hot().seen(instance).expect("the instance is installed");
        let mut bytes = Vec::new();
        let stamp = Stamp { instance, seen };
        HotConfirm { keyspace: key.0, digest: key.1, stamp }.encode(&mut bytes);
        let _ends_here = self.agent.backend_mut().process(0, Ingress::Socket, from, vring, &mut bytes);
    }

    /// The key's owner offers its newest value, and renews its lease without an end.
    pub(super) fn keep(
        &mut self,
        owner: SocketAddrV4,
        vring: SocketAddrV4,
        (keyspace, digest): (KeyspaceId, KeyDigest),
        instance: u64,
    ) {
        let (nonce, serial, until_ns) = (1, 1, u64::MAX);
        let stamp = Stamp { instance, seen: self.hot().seen(instance).expect("the instance is installed") };
        let [mut value, mut lease] = [Vec::new(), Vec::new()];
        HotValue { keyspace, digest, stamp, serial, key: KEY, reply: &[0; PADDING] }.encode(&mut value);
        HotLease { keyspace, digest, nonce, until_ns, serial }.encode(&mut lease);
        let backend = self.agent.backend_mut();
        backend.begin_incarnation(nonce);
        for mut bytes in [value, lease] {
            let _ends_here = backend.process(0, Ingress::Socket, owner, vring, &mut bytes);
        }
    }

    /// Its table of hot keys.
    pub(super) fn hot(&self) -> &HotTable {
        self.agent.backend().hot()
    }

    pub(super) fn routes(&self, partition: PartitionId, node: NodeId) -> bool {
        let Some(tables) = &self.tables else { return false };
        let (partition, host) = (partition.0, HostId(node.0));
        tables.unicast.iter().any(|entry| entry.partition == partition && entry.host == host)
            || tables.division.iter().any(|entry| entry.partition == partition && entry.host == host)
    }
}

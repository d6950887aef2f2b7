//! Contradictions between the keys of one file, each with the key to change and what to do. Checks
//! that the metadata service makes itself are made by its own code, so that the two cannot differ.

use crate::binds::{binds, conflicts};
use crate::cluster::{ClusterConfig, RoleKind};
use crate::keyspaces::Replication;
use crate::sections::{MacAddress, SwitchKind, SwitchSection};
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::net::Ipv4Addr;
use toml::de::{DeArray, DeTable, DeValue};

/// A problem of a file, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A key, such as `nodes.1.address`; empty if no single key is to blame.
    pub place: String,
    pub line: String,
}

impl Problem {
    /// The problem in the form that follows the file's name: `:LINE: KEY: why`, or `: why`.
    pub fn located(&self, text: &str) -> String {
        let Self { place, line } = self;
        match line_of(text, place) {
            Some(number) => format!(":{number}: {}: {line}", shown(place)),
            None if place.is_empty() => format!(": {line}"),
            None => format!(": {}: {line}", shown(place)),
        }
    }
}

/// `nodes.1.address` as `nodes[1].address`.
fn shown(place: &str) -> String {
    let mut shown = String::new();
    for step in place.split('.') {
        let dot = if shown.is_empty() { "" } else { "." };
        _ = match step.parse::<usize>() {
            Ok(index) => write!(shown, "[{index}]"),
            Err(_) => write!(shown, "{dot}{step}"),
        };
    }
    shown
}

/// The line of a key, or of the section that lacks it; `None`: the section is missing, too.
fn line_of(text: &str, place: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut found, mut array) = (Some(document.get_ref()), None, None);
    for step in place.split('.') {
        let (at, value) = match (table, array, step.parse::<usize>()) {
            (_, Some(array), Ok(index)) => {
                let array: &DeArray<'_> = array;
                let item = array.get(index)?;
                (item.span().start, item.get_ref())
            }
            (Some(table), _, _) => {
                let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == step) else { break };
                (key.span().start, value.get_ref())
            }
            _ => break,
        };
        found = Some(at);
        (table, array) = match value {
            DeValue::Table(inner) => (Some(inner), None),
            DeValue::Array(items) => (None, Some(items)),
            _ => (None, None),
        };
    }
    found.map(|at| text[..at].matches('\n').count() + 1)
}

/// Every contradiction between keys; those that may cause others come first.
pub fn problems(config: &ClusterConfig) -> Vec<Problem> {
    let mut found = Findings::default();
    found.presence(config);
    found.servers(config);
    found.replication(config);
    config.switches.iter().enumerate().for_each(|(index, switch)| found.switch(config, index, switch));
    found.binds(config);
    found.gateways(config);
    found.timing(config);
    found.hot(config);
    if found.0.is_empty()
        && let Err(failure) = config.validate()
    {
        found.add("", failure);
    }
    found.0
}

#[derive(Default)]
struct Findings(Vec<Problem>);

/// The properties of a node or metadata instance that must be unique.
pub(crate) struct Server {
    pub place: String,
    pub name: String,
    pub id: Option<u16>,
    pub address: Ipv4Addr,
    pub mac: Option<MacAddress>,
    pub switch_port: Option<u16>,
    /// The switch that has the port, if trunks connect several switches.
    pub switch: Option<String>,
}

impl Server {
    /// Keys whose values no two servers may share, with the values.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("id", self.id.map(|id| id.to_string())),
            ("address", Some(self.address.to_string())),
            ("mac", self.mac.map(String::from)),
            ("switch_port", self.switch_port.map(|port| self.port_of_switch(port))),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
    }

    fn port_of_switch(&self, port: u16) -> String {
        self.switch.as_ref().map_or_else(|| port.to_string(), |switch| format!("{port} of {switch}"))
    }
}

/// The servers of a file, metadata instances first.
pub(crate) fn servers(config: &ClusterConfig) -> Vec<Server> {
    let instances = config.metadata.all().into_iter().enumerate().map(|(index, instance)| Server {
        place: if index == 0 { "metadata".into() } else { format!("metadata.instances.{}", index - 1) },
        name: instance.name,
        id: None,
        address: instance.address,
        mac: instance.mac,
        switch_port: instance.switch_port,
        switch: instance.switch,
    });
    let nodes = config.nodes.iter().enumerate().map(|(index, node)| Server {
        place: format!("nodes.{index}"),
        name: node.name.clone(),
        id: Some(node.id),
        address: node.address,
        mac: Some(node.mac),
        switch_port: Some(node.switch_port),
        switch: node.switch.clone(),
    });
    instances.filter(|instance| !instance.address.is_unspecified()).chain(nodes).collect()
}

impl Findings {
    fn add(&mut self, place: impl Into<String>, line: impl Display) {
        self.0.push(Problem { place: place.into(), line: line.to_string() });
    }

    /// Checks that the sections that the role needs are present.
    fn presence(&mut self, config: &ClusterConfig) {
        let is_in = |roles: &[RoleKind]| config.role.is_none_or(|role| roles.contains(&role));
        if config.cluster().is_err() || config.cluster_id.len() > 32 {
            self.add("cluster_id", "must be 32 hexadecimal digits; `uuidgen | tr -d -` makes some");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Node]) && config.metadata.address.is_unspecified() {
            self.add("metadata", "missing: add [metadata] with the address of the metadata service");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Node]) && config.nodes.is_empty() {
            self.add("nodes", "missing: add [[nodes]], the node itself or all that the cluster starts with");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Switch]) && config.switches.is_empty() {
            self.add("switches", "missing: add [[switches]], the switch itself or all of the cluster");
        }
        if config.role == Some(RoleKind::Gateway) && config.gateways.is_empty() {
            self.add("gateways", "missing: add [[gateways]]");
        }
    }

    fn servers(&mut self, config: &ClusterConfig) {
        let (servers, mut seen) = (servers(config), BTreeMap::new());
        let keyspaces = config.keyspaces().unwrap_or_default();
        let group_ring = config.group_ring().ok().flatten();
        let rings: Vec<Ipv4Addr> = keyspaces.iter().flat_map(|spec| [spec.unicast, spec.multicast]).collect();
        for Server { place, name, address, .. } in &servers {
            if let Some(ring) = rings.iter().find(|ring| ring.octets()[..2] == address.octets()[..2]) {
                let line =
                    format!("{address} is inside the virtual ring {ring}/16; give {name} another address");
                self.add(format!("{place}.address"), line);
            }
            if group_ring.is_some_and(|ring| ring.contains(*address)) {
                let line = format!(
                    "{address} is inside group_ring; give {name} another address, or change group_ring"
                );
                self.add(format!("{place}.address"), line);
            }
        }
        for server in &servers {
            for (field, value) in [("name", server.name.clone())].into_iter().chain(server.own()) {
                if let Some((other, at)) = seen.insert((field, value.clone()), (&server.name, server.address))
                {
                    let (name, address) = (&server.name, server.address);
                    let line = match field {
                        "name" => {
                            format!("{value} is also the name of another server; rename the one at {address}")
                        }
                        _ => format!(
                            "{value} is already used by {other} ({at}); give {name} ({address}) another"
                        ),
                    };
                    self.add(format!("{}.{field}", server.place), line);
                }
            }
        }
    }

    fn replication(&mut self, config: &ClusterConfig) {
        let further = config.keyspaces.iter().enumerate().map(|(index, keyspace)| {
            let replicas = keyspace.replicas.unwrap_or(config.replicas);
            (format!("keyspaces.{index}."), replicas, keyspace.replication, keyspace.write_set)
        });
        let default = (String::new(), config.replicas, config.replication, config.write_set);
        let nodes = config.nodes.iter().filter(|node| !node.spare).count();
        for (place, replicas, replication, write_set) in std::iter::once(default).chain(further) {
            if config.is_of_cluster() && replicas > nodes && nodes > 0 {
                let line = format!(
                    "{replicas} replicas need as many nodes (spares do not count), but there are {nodes}"
                );
                self.add(format!("{place}replicas"), line);
            }
            match (replication, write_set) {
                (Replication::Quorum, Some(write_set)) if !(1..=replicas).contains(&write_set.into()) => {
                    self.add(
                        format!("{place}write_set"),
                        format!("{write_set} is not from 1 to {replicas} (R)"),
                    );
                }
                (Replication::Quorum, None) => {
                    self.add(
                        format!("{place}replication"),
                        "quorum replication also needs write_set (k of R replicas)",
                    );
                }
                (Replication::Multicast | Replication::Chain, Some(_)) => {
                    self.add(format!("{place}write_set"), "is only for replication = \"quorum\"; remove it");
                }
                _ => {}
            }
        }
    }

    fn switch(&mut self, config: &ClusterConfig, index: usize, switch: &SwitchSection) {
        let place = |field: &str| format!("switches.{index}.{field}");
        if config.switches[..index].iter().any(|other| other.name == switch.name) {
            self.add(place("name"), format!("two switches are named {}; rename one", switch.name));
        }
        // A switch's own file needs more keys than the metadata service's file.
        if config.role.is_none_or(|role| role == RoleKind::Switch) {
            if switch.control.is_empty() {
                self.add(
                    place("control"),
                    "missing: the `control` addresses of the metadata service, ADDR:PORT",
                );
            }
            match (switch.kind(), switch.ports.is_empty()) {
                (SwitchKind::Kernel { .. }, true) => {
                    self.add(place("ports"), "missing: a kernel switch (router_mac) needs its interfaces");
                }
                (SwitchKind::UserSpace, false) => {
                    self.add(
                        place("ports"),
                        "need router_mac, which makes it a kernel switch; or remove them",
                    );
                }
                _ => {}
            }
        }
        if switch.openflow.is_some() && switch.router_mac.is_none() {
            self.add(
                place("router_mac"),
                "missing: an OpenFlow switch needs the Ethernet address of the next hop to the virtual rings",
            );
        }
        if switch.requests_per_second.is_some() && switch.openflow.is_none() {
            self.add(place("requests_per_second"), "is only for an OpenFlow switch (openflow); remove it");
        }
        for (at, port) in switch.ports.iter().enumerate() {
            let place = |field: &str| place(&format!("ports.{at}.{field}"));
            match switch.kind() {
                SwitchKind::OpenFlow { .. } if port.device.is_some() => {
                    self.add(place("device"), "is only for a kernel switch; remove it");
                }
                SwitchKind::OpenFlow { .. } if port.number == 0 => {
                    self.add(place("number"), "is 0, but the ports of an OpenFlow switch begin with 1");
                }
                SwitchKind::Kernel { .. } if port.device.is_none() => {
                    self.add(place("device"), "missing: the interface of this port");
                }
                _ => {}
            }
        }
        if switch.router_mac.is_some() && (switch.device.is_some() || switch.address.is_some()) {
            let field = if switch.device.is_some() { "device" } else { "address" };
            self.add(
                place(field),
                "is only for the user-space switch, which has no router_mac; remove one of them",
            );
        }
        for (at, port) in switch.ports.iter().enumerate() {
            if switch.ports[..at].iter().any(|other| other.number == port.number) {
                let line = format!("two ports have the number {}; change one", port.number);
                self.add(place(&format!("ports.{at}.number")), line);
            }
        }
    }

    /// Finds addresses that two roles bind, and ports without login that are open to every network.
    fn binds(&mut self, config: &ClusterConfig) {
        let binds = binds(0, config);
        for conflict in conflicts(&binds) {
            self.add(conflict.second.place.clone(), conflict.line(None));
        }
        for bind in binds.iter().filter(|bind| bind.is_exposed()) {
            self.add(
                bind.place.clone(),
                "0.0.0.0 opens it to every network of the host without a login; use the address at which the cluster reaches it",
            );
        }
    }

    fn gateways(&mut self, config: &ClusterConfig) {
        for (index, gateway) in config.gateways.iter().enumerate() {
            for (field, line) in gateway.problems() {
                self.add(format!("gateways.{index}.{field}"), line);
            }
        }
    }

    fn timing(&mut self, config: &ClusterConfig) {
        let timing = &config.timing;
        if timing.lease_ms <= timing.heartbeat_ms {
            let line = format!(
                "{} must exceed heartbeat_ms ({}), or every lease expires before the next heartbeat; the defaults are 150 and 40",
                timing.lease_ms, timing.heartbeat_ms
            );
            self.add("timing.lease_ms", line);
        }
    }

    fn hot(&mut self, config: &ClusterConfig) {
        if let Err(error) = config.hot.settings().check() {
            self.add(format!("hot.{}", error.field()), error);
        }
    }
}

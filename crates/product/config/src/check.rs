//! What is wrong with one file, each problem with the field that is to blame and what to do about it. What the metadata service itself refuses is asked of
//! it last, and has no line.

use super::binds::{binds, conflicts};
use super::{ClusterConfig, MBIT, Replication, RoleKind, SwitchSection};
use crate::sections::MacAddress;
use nicekv_metadata::LINK_BITS_PER_SECOND_BOUNDS;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::net::Ipv4Addr;
use toml::de::{DeArray, DeTable, DeValue};

/// Shorter periods of balancing by migration would hold two counts of a switch.
const BALANCE_PERIOD_MS_MIN: u64 = 2_000;
/// What a period of hot keys may be: in shorter ones entries change before copies have come, in longer ones load has gone elsewhere.
const HOT_PERIOD_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A field, as `nodes.1.address`; empty: no field alone.
    pub place: String,
    pub line: String,
}

impl Problem {
    /// To follow the file's name: `:LINE: FIELD: why`, or `: why`.
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

/// Where a field is, or the section that lacks it; `None`: there is not even that.
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

/// All of them, those first that others may follow from.
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
    found.link(config);
    if found.0.is_empty()
        && let Err(failure) = config.validate()
    {
        found.add("", failure);
    }
    found.0
}

#[derive(Default)]
struct Findings(Vec<Problem>);

/// A node or an instance of the metadata service.
pub(crate) struct Server {
    pub place: String,
    pub name: String,
    pub id: Option<u16>,
    pub address: Ipv4Addr,
    pub mac: Option<MacAddress>,
    pub switch_port: Option<u16>,
    /// At which that port is, where there are trunks between several.
    pub switch: Option<String>,
}

impl Server {
    /// What no two of them share: field and value.
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
}

impl Server {
    fn port_of_switch(&self, port: u16) -> String {
        self.switch.as_ref().map_or_else(|| port.to_string(), |switch| format!("{port} of {switch}"))
    }
}

/// Those of a file, the metadata service first.
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

    /// What the role cannot do without.
    fn presence(&mut self, config: &ClusterConfig) {
        let is_in = |roles: &[RoleKind]| config.role.is_none_or(|role| roles.contains(&role));
        if config.cluster().is_err() || config.cluster_id.len() > 32 {
            self.add("cluster_id", "not 32 hexadecimal digits; `uuidgen | tr -d -` makes some");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Node]) && config.metadata.address.is_unspecified() {
            self.add("metadata", "no [metadata] with an address; say where the metadata service is");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Node]) && config.nodes.is_empty() {
            self.add("nodes", "no [[nodes]]; add the node, or all that the cluster begins with");
        }
        if is_in(&[RoleKind::Metadata, RoleKind::Switch]) && config.switches.is_empty() {
            self.add("switches", "no [[switches]]; add the switch, or all that the cluster has");
        }
        if config.role == Some(RoleKind::Gateway) && config.gateways.is_empty() {
            self.add("gateways", "no [[gateways]]; add the gateway");
        }
    }

    fn servers(&mut self, config: &ClusterConfig) {
        let (servers, mut seen) = (servers(config), BTreeMap::new());
        let keyspaces = config.keyspaces().unwrap_or_default();
        let group_ring = config.group_ring().ok().flatten();
        let rings: Vec<Ipv4Addr> = keyspaces.iter().flat_map(|spec| [spec.unicast, spec.multicast]).collect();
        for Server { place, name, address, .. } in &servers {
            if let Some(ring) = rings.iter().find(|ring| ring.octets()[..2] == address.octets()[..2]) {
                let line = format!("{address} lies inside the vring {ring}/16; give {name} another address");
                self.add(format!("{place}.address"), line);
            }
            if group_ring.is_some_and(|ring| ring.contains(*address)) {
                let line = format!(
                    "{address} lies inside the ring of groups; give {name} another address, or groups another group_ring"
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
                        "name" => format!("two have the same name, {value}; give {address} another one"),
                        _ => format!("{value} is {other}'s ({at}); give {name} ({address}) another one"),
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
                let line =
                    format!("{replicas} replicas take as many nodes, spares not counted; there are {nodes}");
                self.add(format!("{place}replicas"), line);
            }
            match (replication, write_set) {
                (Replication::Quorum, Some(write_set)) if !(1..=replicas).contains(&write_set.into()) => {
                    self.add(
                        format!("{place}write_set"),
                        format!("{write_set} is not from 1 to {replicas}, R"),
                    );
                }
                (Replication::Quorum, None) => {
                    self.add(format!("{place}replication"), "a quorum takes write_set, too: k of R replicas");
                }
                (Replication::Multicast | Replication::Chain, Some(_)) => {
                    self.add(format!("{place}write_set"), "is of replication = \"quorum\"; leave it out");
                }
                _ => {}
            }
        }
    }

    fn switch(&mut self, config: &ClusterConfig, index: usize, switch: &SwitchSection) {
        let place = |field: &str| format!("switches.{index}.{field}");
        if config.switches[..index].iter().any(|other| other.name == switch.name) {
            self.add(place("name"), format!("two have the same name, {}; give one another", switch.name));
        }
        // Whose own file it is.
        if config.role.is_none_or(|role| role == RoleKind::Switch) {
            if switch.control.is_empty() {
                self.add(
                    place("control"),
                    "missing; say where the metadata service's `control` is, ADDR:PORT",
                );
            }
            match (switch.router_mac, switch.ports.is_empty()) {
                (Some(_), true) => self.add(place("ports"), "missing; a switch in the kernel has interfaces"),
                (None, false) => {
                    self.add(
                        place("ports"),
                        "take router_mac, too: a switch in the kernel; or leave them out",
                    );
                }
                _ => {}
            }
        }
        if switch.router_mac.is_some() && (switch.device.is_some() || switch.address.is_some()) {
            let field = if switch.device.is_some() { "device" } else { "address" };
            self.add(
                place(field),
                "is of the user-space switch, which has no router_mac; leave one of them out",
            );
        }
        for (at, port) in switch.ports.iter().enumerate() {
            if switch.ports[..at].iter().any(|other| other.number == port.number) {
                let line = format!("two ports have the number {}; give one another", port.number);
                self.add(place(&format!("ports.{at}.number")), line);
            }
        }
    }

    /// What roles bind: nothing twice, and nothing without a login on all networks of a host.
    fn binds(&mut self, config: &ClusterConfig) {
        let binds = binds(0, config);
        for conflict in conflicts(&binds) {
            self.add(conflict.second.place.clone(), conflict.line(None));
        }
        for bind in binds.iter().filter(|bind| bind.is_exposed()) {
            self.add(
                bind.place.clone(),
                "0.0.0.0 is every network of the host, and there is no login: name the address at which the cluster reaches it",
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
        for (field, value) in [
            ("heartbeat_ms", timing.heartbeat_ms),
            ("heartbeats_missed", timing.heartbeats_missed.into()),
            ("probe_ms", timing.probe_ms),
            ("grace_heartbeats", timing.grace_heartbeats.into()),
        ] {
            if value == 0 {
                self.add(format!("timing.{field}"), "0; at least 1");
            }
        }
        if timing.balance_period_ms < BALANCE_PERIOD_MS_MIN {
            let line = format!(
                "{}; at least {BALANCE_PERIOD_MS_MIN}: switches are asked once a second what they have counted",
                timing.balance_period_ms
            );
            self.add("timing.balance_period_ms", line);
        }
        if timing.lease_ms <= timing.heartbeat_ms {
            let line = format!(
                "{} is not above heartbeat_ms, {}: every lease would be over before the next; 150 and 40 are the defaults",
                timing.lease_ms, timing.heartbeat_ms
            );
            self.add("timing.lease_ms", line);
        }
    }
}

impl Findings {
    fn hot(&mut self, config: &ClusterConfig) {
        let period_ms = config.hot.period_ms;
        if !HOT_PERIOD_MS.contains(&period_ms) {
            let (least, most) = (HOT_PERIOD_MS.start(), HOT_PERIOD_MS.end());
            self.add("hot.period_ms", format!("{period_ms}; from {least} to {most}"));
        } else if let Err(error) = config.hot.settings().check() {
            self.add(format!("hot.{}", error.field()), error);
        }
    }
}

impl Findings {
    fn link(&mut self, config: &ClusterConfig) {
        if !LINK_BITS_PER_SECOND_BOUNDS.contains(&config.link_bits_per_second()) {
            let (least, most) = (LINK_BITS_PER_SECOND_BOUNDS.start(), LINK_BITS_PER_SECOND_BOUNDS.end());
            let line = format!("{}; from {} to {}", config.link_mbit_per_second, least / MBIT, most / MBIT);
            self.add("link_mbit_per_second", line);
        }
    }
}

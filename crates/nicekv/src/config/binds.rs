//! Addresses that roles bind, and which of them exclude each other: what would else be found only when the second role starts.
//!
//! An address of a network belongs to one host, so two roles that bind it with the same port are in each other's way. A loopback address is
//! another one on every host, unless the cluster is on one host: then a node or the metadata service has a loopback address.

use super::{ClusterConfig, RoleKind};
use nicekv_placement::GroupRing;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What a role binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    /// Of which file.
    pub(super) file: usize,
    /// The field to blame.
    pub(super) place: String,
    role: String,
    protocol: Protocol,
    address: SocketAddr,
    /// All addresses of this interface (the user-space switch).
    device: Option<String>,
    /// It follows from the role's own `address`, which no two roles share anyhow.
    is_server: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

/// Why the second of two cannot be bound.
pub(super) struct Conflict<'a> {
    pub(super) first: &'a Bind,
    pub(super) second: &'a Bind,
}

/// All that the roles of a file bind: of a role's own file that role alone, of the whole cluster's file all.
pub(super) fn binds(file: usize, config: &ClusterConfig) -> Vec<Bind> {
    use Protocol::{Tcp, Udp};
    let mut all = Vec::new();
    let mut add = |place: String, role: &str, protocol, address: SocketAddr, is_server| {
        all.push(Bind { file, place, role: role.to_owned(), protocol, address, device: None, is_server });
    };
    let at = |ip: Ipv4Addr, port: u16| SocketAddr::from((ip, port));
    let is_of = |role: RoleKind| config.role.is_none_or(|own| own == role);
    if is_of(RoleKind::Metadata) {
        for (index, instance) in config.metadata.all().into_iter().enumerate() {
            let place = match index {
                0 => "metadata".to_owned(),
                _ => format!("metadata.instances.{}", index - 1),
            };
            if !instance.address.is_unspecified() {
                add(format!("{place}.address"), &instance.name, Udp, at(instance.address, config.port), true);
            }
            for control in instance.control {
                add(format!("{place}.control"), &instance.name, Tcp, control.into(), false);
            }
            if let Some(metrics) = instance.metrics {
                add(format!("{place}.metrics"), &instance.name, Tcp, metrics, false);
            }
        }
    }
    if is_of(RoleKind::Node) || is_of(RoleKind::Metadata) {
        for (index, node) in config.nodes.iter().enumerate() {
            let place = |field: &str| format!("nodes.{index}.{field}");
            add(place("address"), &node.name, Udp, at(node.address, config.port), true);
            add(place("address"), &node.name, Tcp, at(node.address, config.port), true);
            let target = at(node.address, GroupRing::usual_target_port(config.port));
            add(place("address"), &node.name, Udp, target, true);
            if let Some(metrics) = node.metrics {
                add(place("metrics"), &node.name, Tcp, metrics, false);
            }
        }
    }
    if is_of(RoleKind::Gateway) {
        for (index, gateway) in config.gateways.iter().enumerate() {
            for (field, address) in gateway.addresses() {
                add(format!("gateways.{index}.{field}"), &gateway.name, Tcp, address.into(), false);
            }
            if let Some(metrics) = gateway.metrics {
                add(format!("gateways.{index}.metrics"), &gateway.name, Tcp, metrics, false);
            }
        }
    }
    if is_of(RoleKind::Switch) {
        for (index, switch) in config.switches.iter().enumerate() {
            if let Some(metrics) = switch.metrics {
                add(format!("switches.{index}.metrics"), &switch.name, Tcp, metrics, false);
            }
        }
        for (index, switch) in config.switches.iter().enumerate() {
            if switch.router_mac.is_none() && switch.ports.is_empty() {
                all.push(Bind {
                    file,
                    place: format!("switches.{index}.device"),
                    role: switch.name.clone(),
                    protocol: Udp,
                    address: at(switch.address(), config.port),
                    device: Some(switch.device().to_owned()),
                    is_server: false,
                });
            }
        }
    }
    all
}

/// Pairs that exclude each other.
pub(super) fn conflicts(binds: &[Bind]) -> Vec<Conflict<'_>> {
    let is_one_host = binds.iter().any(|bind| bind.is_server && bind.address.ip().is_loopback());
    let mut found = Vec::new();
    for (index, second) in binds.iter().enumerate() {
        let earlier = binds[..index].iter().find(|first| excludes(first, second, is_one_host));
        found.extend(earlier.map(|first| Conflict { first, second }));
    }
    found
}

fn excludes(one: &Bind, other: &Bind, is_one_host: bool) -> bool {
    let same_role = one.role == other.role;
    // A role that is described in several files binds once; whether they describe it alike is looked at elsewhere.
    let is_same = same_role && (one.file != other.file || one.place == other.place);
    if is_same || one.protocol != other.protocol || one.address.port() != other.address.port() {
        return false;
    }
    // Those have the same address, or they are nowhere near each other.
    if one.is_server && other.is_server {
        return false;
    }
    let (ip, other_ip) = (one.address.ip(), other.address.ip());
    if one.device.is_some() || other.device.is_some() {
        return takes_all_of(one, other_ip) || takes_all_of(other, ip);
    }
    let is_same_host = same_role || is_one_host;
    let means_one_host = |ip: IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    match ip == other_ip {
        true => means_one_host(ip) || is_same_host,
        false => is_same_host && (ip.is_unspecified() || other_ip.is_unspecified()),
    }
}

/// Whether the user-space switch has all addresses of the interface with this one.
fn takes_all_of(switch: &Bind, ip: IpAddr) -> bool {
    switch
        .device
        .as_ref()
        .is_some_and(|device| switch.address.ip() == ip || (device == "lo" && ip.is_loopback()))
}

impl Conflict<'_> {
    /// What is wrong with the second, and what to do. `path`: the file of the first, if it is another one.
    pub(super) fn line(&self, path: Option<&str>) -> String {
        let Self { first, second } = self;
        let place = path.map(|path| format!(" in {path}")).unwrap_or_default();
        let (role, address) = (&second.role, second.address);
        match (&first.device, &second.device) {
            (_, Some(device)) | (Some(device), _) => {
                let (switch, server) =
                    if second.device.is_some() { (second, first) } else { (first, second) };
                format!(
                    "the switch {} takes UDP port {} of every address of {device}, and {} is to have it at {}{place}: give each role a host or a network namespace of its own, or let `nicekv up` run all in one process",
                    switch.role,
                    server.address.port(),
                    server.role,
                    server.address.ip()
                )
            }
            _ if first.role == second.role => {
                format!("{address} is in use by the role itself ({}); choose another port", first.field())
            }
            _ => format!("{address} is {}'s ({}){place}; give {role} another", first.role, first.field()),
        }
    }
}

impl Bind {
    /// The name of its field.
    fn field(&self) -> &str {
        self.place.rsplit('.').next().unwrap_or_default()
    }

    /// Whether every network of the host would reach what needs no login.
    pub(super) fn is_exposed(&self) -> bool {
        self.address.ip().is_unspecified() && ["address", "control"].contains(&self.field())
    }
}

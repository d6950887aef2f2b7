//! Addresses that roles bind, and conflicts between them. Without this check, a conflict would show
//! only when the second role starts.
//!
//! A network address belongs to one host, so two roles that bind it with the same port conflict. A
//! loopback address exists on every host, so it conflicts only if the whole cluster is on one host:
//! then a node or the metadata service has a loopback address.

use crate::cluster::{ClusterConfig, RoleKind};
use crate::gateways::GatewaySection;
use crate::sections::{InstanceSection, MetadataSection, NodeSection, SwitchKind, SwitchSection};
use nicekv_proto::placement::GroupRing;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An address that a role binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    /// Index of its file.
    pub(super) file: usize,
    /// The key that sets the address.
    pub(super) place: String,
    role: String,
    protocol: Protocol,
    address: SocketAddr,
    /// The role takes all addresses of this interface (the user-space switch does).
    device: Option<String>,
    /// The address follows from the server's `address`; a separate check ensures that this is
    /// unique.
    is_server: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

/// Two addresses that cannot both be bound.
pub(super) struct Conflict<'a> {
    pub(super) first: &'a Bind,
    pub(super) second: &'a Bind,
}

/// The addresses that the roles of a file bind; if the file is for one role, only that role's.
pub(super) fn binds(file: usize, config: &ClusterConfig) -> Vec<Bind> {
    let is_of = |role: RoleKind| config.role.is_none_or(|own| own == role);
    let mut found = Found { file, port: config.port, all: Vec::new() };
    if is_of(RoleKind::Metadata) {
        found.instances(&config.metadata);
    }
    if is_of(RoleKind::Node) || is_of(RoleKind::Metadata) {
        config.nodes.iter().enumerate().for_each(|(index, node)| found.node(index, node));
    }
    if is_of(RoleKind::Gateway) {
        config.gateways.iter().enumerate().for_each(|(index, gateway)| found.gateway(index, gateway));
    }
    if is_of(RoleKind::Switch) {
        config.switches.iter().enumerate().for_each(|(index, switch)| found.switch(index, switch));
    }
    found.all
}

/// Collects the addresses of a file.
struct Found {
    file: usize,
    port: u16,
    all: Vec<Bind>,
}

impl Found {
    fn add(&mut self, place: String, role: &str, protocol: Protocol, address: SocketAddr) -> &mut Bind {
        let (file, role) = (self.file, role.to_owned());
        self.all.push(Bind { file, place, role, protocol, address, device: None, is_server: false });
        self.all.last_mut().expect("it was added")
    }

    fn add_server(&mut self, place: String, role: &str, protocol: Protocol, ip: Ipv4Addr, port: u16) {
        self.add(place, role, protocol, (ip, port).into()).is_server = true;
    }

    fn add_metrics(&mut self, place: &str, role: &str, metrics: Option<SocketAddr>) {
        if let Some(metrics) = metrics {
            self.add(format!("{place}.metrics"), role, Protocol::Tcp, metrics);
        }
    }

    fn instances(&mut self, section: &MetadataSection) {
        for (index, instance) in section.all().into_iter().enumerate() {
            let InstanceSection { name, address, control, metrics, .. } = instance;
            let place = match index {
                0 => "metadata".to_owned(),
                _ => format!("metadata.instances.{}", index - 1),
            };
            if !address.is_unspecified() {
                self.add_server(format!("{place}.address"), &name, Protocol::Udp, address, self.port);
            }
            for control in control {
                self.add(format!("{place}.control"), &name, Protocol::Tcp, control.into());
            }
            self.add_metrics(&place, &name, metrics);
        }
    }

    fn node(&mut self, index: usize, node: &NodeSection) {
        let NodeSection { name, address, metrics, .. } = node;
        let place = format!("nodes.{index}");
        let own = || format!("{place}.address");
        self.add_server(own(), name, Protocol::Udp, *address, self.port);
        self.add_server(own(), name, Protocol::Tcp, *address, self.port);
        let target = GroupRing::usual_target_port(self.port);
        self.add_server(own(), name, Protocol::Udp, *address, target);
        self.add_metrics(&place, name, *metrics);
    }

    fn gateway(&mut self, index: usize, gateway: &GatewaySection) {
        let place = format!("gateways.{index}");
        for (field, address) in gateway.addresses() {
            self.add(format!("{place}.{field}"), &gateway.name, Protocol::Tcp, address.into());
        }
        self.add_metrics(&place, &gateway.name, gateway.metrics);
    }

    fn switch(&mut self, index: usize, switch: &SwitchSection) {
        let place = format!("switches.{index}");
        self.add_metrics(&place, &switch.name, switch.metrics);
        if let SwitchKind::OpenFlow { controller, .. } = switch.kind() {
            self.add(format!("{place}.openflow"), &switch.name, Protocol::Tcp, controller.into());
        }
        if switch.kind() == SwitchKind::UserSpace && switch.ports.is_empty() {
            let address = (switch.address(), self.port).into();
            let bind = self.add(format!("{place}.device"), &switch.name, Protocol::Udp, address);
            bind.device = Some(switch.device().to_owned());
        }
    }
}

/// All pairs of addresses that conflict.
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
    // A role that several files describe binds its address once; `across` checks that the files
    // agree.
    let is_same = same_role && (one.file != other.file || one.place == other.place);
    if is_same || one.protocol != other.protocol || one.address.port() != other.address.port() {
        return false;
    }
    // Equal addresses of two servers are reported by another check.
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

/// Whether the user-space switch takes this address, with all others of its interface.
fn takes_all_of(switch: &Bind, ip: IpAddr) -> bool {
    switch
        .device
        .as_ref()
        .is_some_and(|device| switch.address.ip() == ip || (device == "lo" && ip.is_loopback()))
}

impl Conflict<'_> {
    /// The problem of the second address, and what to do. `path`: the file of the first address, if
    /// it is another one.
    pub(super) fn line(&self, path: Option<&str>) -> String {
        let Self { first, second } = self;
        let place = path.map(|path| format!(" in {path}")).unwrap_or_default();
        let (role, address) = (&second.role, second.address);
        match (&first.device, &second.device) {
            (_, Some(device)) | (Some(device), _) => {
                let (switch, server) =
                    if second.device.is_some() { (second, first) } else { (first, second) };
                format!(
                    "the switch {} takes UDP port {} of every address of {device}, but {} needs it at {}{place}: give each role its own host or network namespace, or use `nicekv up`, which runs all in one process",
                    switch.role,
                    server.address.port(),
                    server.role,
                    server.address.ip()
                )
            }
            _ if first.role == second.role => {
                format!("{address} is already used by the same role ({}); choose another port", first.field())
            }
            _ => {
                let (owner, field) = (&first.role, first.field());
                format!("{address} is already used by {owner} ({field}){place}; give {role} another")
            }
        }
    }
}

impl Bind {
    /// The last part of the key's name.
    fn field(&self) -> &str {
        self.place.rsplit('.').next().unwrap_or_default()
    }

    /// Whether it opens a port without login to every network of the host.
    pub(super) fn is_exposed(&self) -> bool {
        self.address.ip().is_unspecified() && ["address", "control"].contains(&self.field())
    }
}

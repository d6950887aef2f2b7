//! The namespaces and links of a lab.
//!
//! ```text
//!  ns node-0            ns switch                     ns metadata
//!    eth0 ══════ veth ══ node-0 ┐      ┌ metadata ══ veth ══ eth0
//!                               ├ XDP ─┤  or tc
//!    eth0 ══════ veth ══ client-0      └ …   mgmt0 ══ veth ══ mgmt0-0
//! ```
//!
//! Each further switch has a namespace, management links, and trunks. The trunk between the first
//! two is called `switch-1` at the first switch, and `switch` at its other end ([`crate::layout`]).
//!
//! On a plain network (`--fabric plain`) the hosts are connected by a bridge, and each host has an
//! internal link whose far end belongs to its edge:
//!
//! ```text
//!  ns node-0                                   ns fabric
//!    eth0 ═════════════════ veth ══ node-0 ┐
//!     ▲ route of the vrings                ├─ bridge ─ …
//!    vring0 ═ veth ═ vring1 ── tc ──▶ eth0 ┘
//! ```
//!
//! Nothing is ever created in the operator's own namespace, so removing the namespaces removes
//! everything.

use std::fs;
use std::path::Path;

use nicekv_switch_xdp::{CUTTER, Hook};

use crate::arguments::Mtu;
use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::layout::Layout;
use crate::lock::Lock;
use crate::namespace::Namespace;
use crate::process::kill_all;
use crate::scope::Scope;
use crate::tool::run;
use crate::topology::{
    EDGE_INTERFACE, Host, ROUTER, VRING_INTERFACE, control_of, format_mac, mac, switch_control,
};

/// The largest MTU of an interface.
const MTU_MAX: u32 = 65_535;
/// Name of the bridge of a plain network.
const BRIDGE: &str = "bridge";

/// Properties of the links between hosts and switches.
#[derive(Clone, Copy)]
pub(crate) struct LinkSettings {
    pub(crate) data_plane: DataPlane,
    pub(crate) mtu: Mtu,
}

/// Offload features of a host's end of a link (see nicekv-switch-xdp).
fn features(data_plane: DataPlane) -> &'static str {
    match data_plane.hook() {
        // The switch segments GSO batches itself; behind it, GRO merges them again.
        Some(Hook::Tc) => "gro on",
        _ => "gro on tx off rx off txvlan off",
    }
}

/// Creates the namespace of `host` and its link to its switch, whose namespace must exist. A
/// further switch gets trunks. Routes to `vrings` lead over the link, or through the host's edge.
pub(crate) fn add_host(
    lock: &Lock,
    scope: &Scope,
    layout: Layout,
    host: Host,
    link_settings: LinkSettings,
    vrings: &[String],
) -> Result<()> {
    if host.machine() != host {
        return Ok(());
    }
    let namespace = scope.namespace(host);
    let name = namespace.name();
    run(lock, &format!("ip netns add {name}"))?;
    silence_ipv6(&namespace)?;
    run(lock, &format!("ip -n {name} link set lo up"))?;
    let switch = scope.namespace(layout.home(host));
    match host {
        Host::Fabric => {
            run(lock, &format!("ip -n {name} link add {BRIDGE} type bridge"))?;
            run(lock, &format!("ip -n {name} link set {BRIDGE} up"))
        }
        Host::Metadata | Host::Instance(_) => {
            connect(lock, &switch, &namespace, host, link_settings, vrings)?;
            let instance = host.instance().expect("an instance");
            layout
                .switches()
                .try_for_each(|switch| connect_control(lock, scope, switch, &namespace, instance))
        }
        Host::FurtherSwitch(_) => {
            add_segmenter(lock, &namespace)?;
            layout.above(host).into_iter().try_for_each(|above| {
                connect_trunk(lock, (&scope.namespace(above), above), (&namespace, host), link_settings)
            })
        }
        Host::Node(_) | Host::Client(_) => connect(lock, &switch, &namespace, host, link_settings, vrings),
        Host::Switch => add_segmenter(lock, &namespace),
        Host::NodeEdge(_)
        | Host::ClientEdge(_)
        | Host::Etcd(_)
        | Host::OvsDatabase(_)
        | Host::OvsDatapath(_) => Ok(()),
    }
}

/// Adds the pair of interfaces with which a switch segments GSO batches.
fn add_segmenter(lock: &Lock, switch: &Namespace) -> Result<()> {
    let (name, [near, far]) = (switch.name(), CUTTER);
    run(lock, &format!("ip -n {name} link add {near} type veth peer name {far}"))?;
    run(lock, &format!("ip netns exec {name} ethtool -K {near} tx-udp-segmentation off"))?;
    // It must carry the frames of every port.
    [near, far]
        .iter()
        .try_for_each(|end| run(lock, &format!("ip -n {name} link set {end} mtu {MTU_MAX} arp off up")))
}

/// The same for a host on a plain network. Edges have no namespaces; they run in those of their
/// hosts.
pub(crate) fn add_plain_host(
    lock: &Lock,
    scope: &Scope,
    host: Host,
    mtu: Mtu,
    vrings: &[String],
) -> Result<()> {
    let link_settings = LinkSettings { data_plane: DataPlane::Kernel(Hook::Tc), mtu };
    if host.machine() != host {
        return Ok(());
    }
    if !host.has_link() {
        return add_host(lock, scope, Layout::single(), host, link_settings, vrings);
    }
    let namespace = scope.namespace(host);
    let (name, fabric) = (namespace.name(), scope.namespace(Host::Fabric));
    run(lock, &format!("ip netns add {name}"))?;
    silence_ipv6(&namespace)?;
    run(lock, &format!("ip -n {name} link set lo up"))?;
    connect(lock, &fabric, &namespace, host, link_settings, &[])?;
    run(lock, &format!("ip -n {} link set {host} master {BRIDGE}", fabric.name()))?;
    if host.edge().is_some() { add_edge_link(lock, &namespace, host, mtu, vrings) } else { Ok(()) }
}

/// Creates the link within a host through which its edge receives what the host sends to the
/// vrings.
fn add_edge_link(lock: &Lock, namespace: &Namespace, host: Host, mtu: Mtu, vrings: &[String]) -> Result<()> {
    let (name, near, far) = (namespace.name(), VRING_INTERFACE, EDGE_INTERFACE);
    let (mac, router_mac) = (format_mac(mac(host.address())), format_mac(crate::topology::mac(ROUTER)));
    run(lock, &format!("ip -n {name} link add {near} address {mac} type veth peer name {far}"))?;
    run(lock, &format!("ip netns exec {name} ethtool -K {near} tx-udp-segmentation off"))?;
    accept_own(namespace, near)?;
    for end in [near, far] {
        run(lock, &format!("ip -n {name} link set {end} mtu {mtu} arp off up"))?;
    }
    run(lock, &format!("ip -n {name} neigh add {ROUTER} lladdr {router_mac} nud permanent dev {near}"))?;
    for vring in vrings {
        run(lock, &format!("ip -n {name} route add {vring} via {ROUTER} dev {near} onlink"))?;
    }
    Ok(())
}

/// Accepts packets with the host's own source address: what a host sends to a vring may come back
/// to its own node.
fn accept_own(namespace: &Namespace, interface: &str) -> Result<()> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/accept_local");
    namespace.inside(|| fs::write(&path, "1"))?.map_err(LabError::io("write", Path::new(&path)))
}

/// Turns off router solicitations and the like, so that only the cluster's traffic is on the links.
fn silence_ipv6(namespace: &Namespace) -> Result<()> {
    namespace.inside(|| {
        for interfaces in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
            // The kernel may have no IPv6.
            if fs::exists(&path).unwrap_or(false) {
                fs::write(&path, "1").map_err(LabError::io("write", Path::new(&path)))?;
            }
        }
        Ok(())
    })?
}

fn connect(
    lock: &Lock,
    switch: &Namespace,
    namespace: &Namespace,
    host: Host,
    LinkSettings { data_plane, mtu }: LinkSettings,
    vrings: &[String],
) -> Result<()> {
    let (switch, name) = (switch.name(), namespace.name());
    let (address, mac) = (host.address(), format_mac(mac(host.address())));
    let router_mac = format_mac(crate::topology::mac(ROUTER));
    run(
        lock,
        &format!(
            "ip -n {switch} link add {host} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} netns {name}"
        ),
    )?;
    run(lock, &format!("ip netns exec {name} ethtool -K eth0 {}", features(data_plane)))?;
    let port = match data_plane.hook() {
        // Without it the host's end does not apply GRO to what comes from here. TCP is not
        // affected.
        Some(Hook::Tc) => "tso off",
        // Merges what XDP passes on to tc, such as chunks.
        Some(_) => "gro on rx-udp-gro-forwarding on",
        // Open vSwitch must see each frame as it is on the wire.
        None => "gro off tx off",
    };
    run(lock, &format!("ip netns exec {switch} ethtool -K {host} {port}"))?;
    run(lock, &format!("ip -n {name} addr add {address}/16 dev eth0"))?;
    run(lock, &format!("ip -n {name} link set eth0 up"))?;
    accept_own(namespace, "eth0")?;
    run(lock, &format!("ip -n {switch} link set {host} up"))?;
    run(lock, &format!("ip -n {name} neigh add {ROUTER} lladdr {router_mac} nud permanent dev eth0"))?;
    for vring in vrings {
        run(lock, &format!("ip -n {name} route add {vring} via {ROUTER}"))?;
    }
    Ok(())
}

/// Creates a trunk between two switches. Each end has the name of the switch at the other end. TCP
/// crosses it as it was sent, without merging.
fn connect_trunk(
    lock: &Lock,
    (above, back): (&Namespace, Host),
    (below, host): (&Namespace, Host),
    LinkSettings { data_plane, mtu }: LinkSettings,
) -> Result<()> {
    let (near, far) = (above.name(), below.name());
    run(
        lock,
        &format!("ip -n {near} link add {host} mtu {mtu} type veth peer name {back} mtu {mtu} netns {far}"),
    )?;
    for (name, end) in [(near, host), (far, back)] {
        if data_plane.hook() != Some(Hook::Tc) {
            run(lock, &format!("ip netns exec {name} ethtool -K {end} {}", features(data_plane)))?;
        }
        run(lock, &format!("ip -n {name} link set {end} up"))?;
    }
    Ok(())
}

/// Creates the management link between a switch and an instance. The switch's end has the
/// instance's number in its name, the other end has both numbers.
fn connect_control(
    lock: &Lock,
    scope: &Scope,
    switch: Host,
    metadata: &Namespace,
    instance: u8,
) -> Result<()> {
    let (namespace, number) = (scope.namespace(switch), switch.switch().expect("a switch"));
    let (switch, metadata) = (namespace.name(), metadata.name());
    let (near, far) = (format!("mgmt{instance}"), format!("mgmt{instance}-{number}"));
    run(lock, &format!("ip -n {switch} link add {near} type veth peer name {far} netns {metadata}"))?;
    let ends = [
        (switch, near, switch_control(instance, number)),
        (metadata, far, *control_of(instance, number).ip()),
    ];
    for (name, link, address) in ends {
        run(lock, &format!("ip -n {name} addr add {address}/30 dev {link}"))?;
        run(lock, &format!("ip -n {name} link set {link} up"))?;
    }
    Ok(())
}

/// Kills all processes of the lab and removes its namespaces.
pub(crate) fn remove(lock: &Lock, scope: &Scope) -> Result<()> {
    let namespaces = scope.namespaces()?;
    kill_all(&namespaces)?;
    for namespace in &namespaces {
        run(lock, &format!("ip netns del {}", namespace.name()))?;
    }
    Ok(())
}

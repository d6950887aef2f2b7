//! The configuration file that the processes of a lab read.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

use nicekv_config::{
    ClusterConfig, GatewaySection, HotSection, InstanceSection, KeyspaceSection, LogSection, MacAddress,
    MetadataSection, NodeSection, PortSection, Replication, Store, SwitchSection, ThreadCount, TimingSection,
};
use nicekv_lab::{
    DataPlane, Hook, Plan, PlannedEdge, PlannedInstance, PlannedNode, PlannedPort, PlannedSwitch,
};
use nicekv_proto::placement::{Vrings, partitions_for};
use nicekv_runtime::random_id;
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};

/// Port of each host's metrics.
const METRICS_PORT: u16 = 9464;

/// The configuration file for this lab, as TOML.
pub(crate) fn of(plan: &Plan) -> Result<String, String> {
    let cluster = match &plan.data_directory {
        Some(path) => cluster_of(path)?,
        None => random_id().map_err(to_line)?,
    };
    let directory = |name: &str| plan.data_directory.as_ref().map(|path| path.join(name));
    let node = |node: &PlannedNode| NodeSection {
        name: node.name.clone(),
        id: node.id,
        address: node.address,
        mac: MacAddress(node.mac),
        switch_port: node.switch_port,
        switch: node.switch.clone(),
        data_directory: directory(&node.name),
        spare: node.is_spare,
        metrics: Some(metrics(node.address)),
        kernel_get_mib: plan.kernel_get_mib,
        copy_mib_per_second: NodeSection::copy_mib_per_second(),
        reserve_mib: None,
        value_mib_max: NodeSection::value_mib_max(),
        busy_poll_us: NodeSection::busy_poll_us(),
        coordinates: plan.nodes_coordinate,
    };
    let Vrings { unicast, multicast, port: wire_port } = Vrings::on_network(plan.wire_port);
    let (clients, clients_length) = plan.clients;
    let config = ClusterConfig {
        role: None,
        replication: if plan.write_set.is_some() { Replication::Quorum } else { Replication::Multicast },
        write_set: plan.write_set,
        cluster_id: format!("{cluster:032x}"),
        port: wire_port,
        replicas: plan.replicas,
        partition_bits: partitions_for(plan.nodes.iter().filter(|node| !node.is_spare).count()).ilog2() as u8,
        unicast_vring: unicast,
        multicast_vring: multicast,
        group_ring: None,
        link_mbit_per_second: plan.link_mbit_per_second,
        // A get by quorum asks several replicas, so gets are not divided among them.
        clients: plan.write_set.is_none().then(|| format!("{clients}/{clients_length}")),
        metadata: metadata(plan),
        nodes: plan.nodes.iter().map(node).collect(),
        switches: switches(plan),
        gateways: plan.gateways.iter().map(|name| gateway(plan, name)).collect(),
        keyspaces: plan.keyspaces.iter().map(KeyspaceSection::of).collect(),
        timing: TimingSection::default(),
        hot: HotSection::default().with(plan.hot.values_max, plan.hot.holders_max),
        log: LogSection::default(),
    };
    config.metadata_config().map_err(to_line)?;
    toml::to_string(&config).map_err(to_line)
}

/// The section of the first instance of the metadata service, which also lists the others.
fn metadata(plan: &Plan) -> MetadataSection {
    let is_plain = !plan.edges.is_empty();
    let instance = |planned: &PlannedInstance| InstanceSection {
        name: planned.name.clone(),
        address: *planned.address.ip(),
        mac: Some(MacAddress(planned.mac)),
        switch_port: Some(planned.switch_port),
        switch: planned.switch.clone(),
        control: match is_plain {
            true => vec![planned.address],
            false => std::iter::once(planned.address).chain(planned.controls.iter().copied()).collect(),
        },
        metrics: Some(metrics(*planned.address.ip())),
    };
    let mut instances: Vec<_> = plan.metadata.iter().map(instance).collect();
    let InstanceSection { address, mac, switch_port, switch, control, metrics, .. } = instances.remove(0);
    let store = if plan.etcd.is_empty() { Store::File } else { Store::Etcd };
    MetadataSection {
        address,
        mac,
        switch_port,
        switch,
        control,
        data_directory: (store == Store::File).then(|| plan.metadata_directory.clone()),
        metrics,
        store,
        endpoints: plan.etcd.iter().map(|member| format!("http://{member}")).collect(),
        ca_file: None,
        certificate_file: None,
        key_file: None,
        prefix: None,
        lease_ms: None,
        instances,
    }
}

/// Gateways run one thread each, since all hosts share one machine.
fn gateway(plan: &Plan, name: &str) -> GatewaySection {
    let threads = Some(ThreadCount::ONE);
    GatewaySection {
        name: name.into(),
        listen: Some(plan.resp),
        tls_resp: None,
        tls_certificate: None,
        tls_key: None,
        tls_ca: None,
        protected_mode: true,
        threads,
        memory_mib_max: None,
        large_mib_max: None,
        value_mib_max: None,
        password_file: None,
        acl_file: None,
        metrics: Some(metrics(Ipv4Addr::LOCALHOST)),
    }
}

/// The switches; on a plain network the edges.
fn switches(plan: &Plan) -> Vec<SwitchSection> {
    if !plan.edges.is_empty() {
        return plan.edges.iter().map(|edge| edge_section(plan, edge)).collect();
    }
    plan.switches.iter().map(|planned| switch_section(plan, planned)).collect()
}

/// A switch's interfaces have the names of the hosts at their other ends.
fn switch_section(plan: &Plan, planned: &PlannedSwitch) -> SwitchSection {
    let hook = match plan.data_plane {
        DataPlane::Kernel(hook) => Some(hook),
        DataPlane::OpenFlow => None,
    };
    let port = |port: &PlannedPort| PortSection {
        number: port.number,
        device: hook.map(|_| port.device.clone()),
        hook: hook.unwrap_or_default(),
        trunk: port.is_trunk.then(|| port.device.clone()),
    };
    // An OpenFlow switch tells its controller which other ports it has.
    let ports = planned.ports.iter().filter(|port| hook.is_some() || port.is_trunk).map(port).collect();
    let section = switch(&planned.name, planned.control.clone(), plan.router_mac, ports, &planned.directory);
    let openflow = hook.is_none().then_some(nicekv_lab::CONTROLLER);
    SwitchSection { openflow, ..section }
}

/// An edge's port to its own host is the link within the host; its ports to all other servers are
/// the host's uplink.
fn edge_section(plan: &Plan, edge: &PlannedEdge) -> SwitchSection {
    let servers = plan.nodes.iter().map(|node| node.switch_port);
    let servers = servers.chain(plan.metadata.iter().map(|instance| instance.switch_port));
    let others = servers.filter(|number| *number != edge.port);
    let others = others.map(|number| (number, edge.uplink, Hook::None));
    let ports = std::iter::once((edge.port, edge.device, Hook::Tc)).chain(others);
    let port = |(number, device, hook): (u16, &str, Hook)| PortSection {
        number,
        device: Some(device.into()),
        hook,
        trunk: None,
    };
    let control = plan.metadata.iter().map(|instance| instance.address).collect();
    switch(&edge.name, control, edge.mac, ports.map(port).collect(), &edge.directory)
}

fn switch(
    name: &str,
    control: Vec<SocketAddrV4>,
    router_mac: [u8; 6],
    ports: Vec<PortSection>,
    directory: &Path,
) -> SwitchSection {
    SwitchSection {
        name: name.into(),
        control,
        router_mac: Some(MacAddress(router_mac)),
        openflow: None,
        requests_per_second: None,
        ports,
        device: None,
        hosts: vec![],
        address: None,
        data_directory: Some(directory.into()),
        // The edge's host has another role that already serves metrics at the usual port.
        metrics: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT + 1))),
    }
}

/// The metrics endpoint of a host.
fn metrics(address: Ipv4Addr) -> SocketAddr {
    (address, METRICS_PORT).into()
}

/// The id of the cluster whose data is in this directory, or will be.
fn cluster_of(path: &Path) -> Result<u128, String> {
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    let expected = Expected {
        cluster_id: None,
        owner: "nicekv lab",
        cluster_id_if_new: random_id().map_err(to_line)?,
        storage_id_if_new: random_id().map_err(to_line)?,
    };
    // The lock is released here; each role locks its own directory.
    let directory = DataDirectory::open(&files, path, expected).map_err(to_line)?;
    Ok(directory.cluster_id())
}

fn to_line(error: impl Display) -> String {
    error.to_string()
}

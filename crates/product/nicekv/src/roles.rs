//! The roles of a cluster, each on its own thread, whether all are in one process (`up`) or each is
//! a separate process.
//!
//! A role is first *prepared* (sockets bound, locks taken, configuration checked), which may fail
//! with a one-line error, and then *spawned*. A role that fails stops the whole process.

use crate::chunk_target::TargetSetup;
use crate::descriptors::Needs;
use crate::gateway::GatewayFlags;
use crate::kernel_gets;
use crate::logs::events::Event;
use crate::logs::watch::{emit, watcher};
use crate::metrics::MetricsArguments;
use crate::notify;
use crate::reserves::Reserves;
use crate::role::{Prepared, Role, ended, say, spawn, spawn_role};
use crate::sockets::{self, KnownSockets};
use log::Level;
use nicekv_config::address::bind_error;
use nicekv_config::{
    ClusterConfig, InstanceSection, MetadataSection, NodeSection, PortSection, Store, SwitchKind,
    SwitchSection,
};
use nicekv_metadata::{LeaseTiming, Metadata, StateStore};
use nicekv_metrics::Source;
use nicekv_openflow::program::Fabric;
use nicekv_operator::failure::Failure;
use nicekv_proto::{Duration, NodeId};
use nicekv_replica::{NodeConfig, Scripts, Timing};
use nicekv_runtime::chunks::TargetWatch;
use nicekv_runtime::inquiry::Inquiries;
use nicekv_runtime::metadata::{
    Etcd, EtcdConfig, EtcdError, EtcdTls, MemoryState, MetadataService, SharedStore, StateFile,
};
use nicekv_runtime::node::{Node, StorageOptions, open_durable, open_memory};
use nicekv_runtime::{
    AgentLink, ClientTracer, OpenFlowSwitch, Stop, TermFile, TrunkLinks, UdpEndpoint, Uplink,
    UserSpaceSwitch, Waker, WatchedPort, listen, new_client_id, now, random, random_id, run_agent,
    run_openflow, switch_agent,
};
use nicekv_scripts::WorkerScripts;
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};
use nicekv_switch_xdp::{Hook, KernelSwitch, Port};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The program that runs the scripts of a node: this same binary.
const OWN_PROGRAM: &str = "/proc/self/exe";
const SCRIPT_WORKER: &str = "script-worker";
/// How many timeouts of an etcd endpoint fit into a leader's lease.
const ASKED_PER_LEASE: u32 = 5;

/// Opens or creates a data directory of the cluster.
pub(crate) fn open_directory(path: &Path, cluster: u128, owner: &str) -> Result<DataDirectory, Failure> {
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    let expected = Expected {
        cluster_id: Some(cluster),
        owner,
        cluster_id_if_new: cluster,
        storage_id_if_new: random_id().map_err(Failure::environment)?,
    };
    DataDirectory::open(&files, path, expected).map_err(Failure::environment)
}

/// Prepares the metadata service with its state in `directory`, or in memory.
pub(crate) fn prepare_metadata(
    config: &ClusterConfig,
    directory: Option<DataDirectory>,
    endpoint: UdpEndpoint,
    listeners: Vec<TcpListener>,
) -> Result<Prepared, Failure> {
    match directory {
        Some(directory) => {
            prepare_with_state(config, StateFile::new(Arc::new(RealFiles), directory), endpoint, listeners)
        }
        None => prepare_with_state(config, MemoryState, endpoint, listeners),
    }
}

fn prepare_with_state<S>(
    config: &ClusterConfig,
    mut store: S,
    endpoint: UdpEndpoint,
    listeners: Vec<TcpListener>,
) -> Result<Prepared, Failure>
where
    S: StateStore<Error: std::error::Error + Send + Sync + 'static> + Send + 'static,
{
    let persisted = store.load().map_err(Failure::environment)?;
    let core = Metadata::new(config.metadata_config()?, persisted.as_deref(), now())
        .map_err(Failure::environment)?;
    let service = MetadataService::new(core, store, endpoint, listeners, config.switch_ids())
        .map_err(Failure::environment)?
        .known_as(MetadataSection::FIRST, config.metadata_instances());
    let source = Source::Metadata(service.inquirer());
    Ok(Prepared { role: Box::new(move |stop| service.run(stop).map_err(|error| error.to_string())), source })
}

/// Prepares a storage node with its data in `directory`, or in memory. The node's log is read
/// later, when the role runs.
pub(crate) fn prepare_node(
    config: &ClusterConfig,
    section: &NodeSection,
    directory: Option<(DataDirectory, StorageOptions)>,
    uplink: Uplink,
    listener: TcpListener,
) -> Result<Prepared, Failure> {
    let kernel = kernel_gets::load(config, section);
    let replica = NodeConfig {
        node: NodeId(section.id),
        metadata: config.metadata_addresses(),
        switch: config.hiding_switch(),
        coordinates: section.coordinates,
        incarnation: random().map_err(Failure::environment)?,
        storage: random_id().map_err(Failure::environment)?,
        internal_client: new_client_id().map_err(Failure::environment)?,
        value_bytes_max: section.value_mib_max.bytes() as u32,
        hash_seed: random().map_err(Failure::environment)?,
        tells_visibility: kernel.is_some(),
        timing: Timing {
            heartbeat: config.heartbeat(),
            copy_bytes_per_second: section.copy_mib_per_second.saturating_mul(1 << 20),
            ..Timing::default()
        },
    };
    let busy_poll = Duration::from_micros(section.busy_poll_us);
    let watch = TargetWatch::default();
    let place = directory.as_ref().map(|(directory, _)| directory);
    let target = TargetSetup::new(config, section, place, watch.clone());
    let inquiries = Inquiries::default();
    let source = Source::Node(section.name.clone(), inquiries.inquirer(), watch);
    let role: Role = Box::new(move |stop| {
        let waker = Waker::new().map_err(|error| error.to_string())?;
        let (core, storage) = match directory {
            None => open_memory(replica),
            Some((directory, options)) => {
                open_durable(replica, now(), Arc::new(RealFiles), directory, options, waker.clone())
                    .map_err(|error| error.to_string())?
            }
        };
        let node = Node::new(core, storage, uplink, listener, waker, busy_poll);
        let worker = WorkerScripts::new(OWN_PROGRAM.into(), vec![SCRIPT_WORKER.into()]);
        let node = node.with_scripts(Scripts::new(Arc::new(worker)));
        let node = match kernel {
            Some((program, size)) => node.with_kernel(program, size),
            None => node,
        };
        let target = spawn_beside(stop, target);
        let ended = node.answering(inquiries).run(stop).map_err(|error| error.to_string());
        // After a normal stop, the directory stays locked until the storage target has ended, too.
        // A failure of the node is reported without waiting for the target.
        if ended.is_ok() {
            let _ = target.map(JoinHandle::join);
        }
        ended
    });
    Ok(Prepared { role, source })
}

/// Spawns a thread for the storage target of a node.
fn spawn_beside(stop: &Stop, target: TargetSetup) -> Option<JoinHandle<()>> {
    let running = stop.clone();
    spawn(stop, "target", move || target.run(&running))
}

/// Runs scripts for the node that started this process.
pub(crate) fn run_script_worker() -> Result<(), Failure> {
    nicekv_scripts::serve().map_err(Failure::environment)
}

/// TLS settings of the connection to etcd.
fn etcd_tls(section: &MetadataSection) -> Result<Option<EtcdTls>, Failure> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Ok((name, bytes)),
            Err(error) => Err(Failure::Environment(format!("{name}: {error}"))),
        }
    };
    let Some(authority) = section.ca_file.as_ref().map(read).transpose()? else { return Ok(None) };
    let client = match (&section.certificate_file, &section.key_file) {
        (Some(chain), Some(key)) => Some((read(chain)?, read(key)?)),
        _ => None,
    };
    fn pem((name, bytes): &(String, Vec<u8>)) -> (&str, &[u8]) {
        (name, bytes)
    }
    let client = client.as_ref().map(|(chain, key)| (pem(chain), pem(key)));
    EtcdTls::new(pem(&authority), client).map(Some).map_err(Failure::environment)
}

/// Prepares a metadata instance that shares its state with others through etcd.
fn prepare_shared(
    config: &ClusterConfig,
    name: &str,
    endpoint: UdpEndpoint,
    listeners: Vec<TcpListener>,
) -> Result<Prepared, Failure> {
    let (section, core) = (&config.metadata, config.metadata_config()?);
    let lease = Duration::from_millis(section.lease_ms());
    let mut etcd = Etcd::new(EtcdConfig {
        endpoints: section.endpoints.clone(),
        prefix: section.prefix().to_owned(),
        cluster: config.cluster()?,
        timeout: lease / ASKED_PER_LEASE,
        tls: etcd_tls(section)?,
    });
    match etcd.load() {
        // Refuses a configuration that contradicts the stored state now, not later when the
        // instance becomes the leader.
        Ok(state) => {
            Metadata::new(core.clone(), state.as_deref(), now()).map_err(Failure::environment)?;
        }
        Err(EtcdError::Unreachable(why)) => say(format_args!("{name} waits for etcd: {why}"))?,
        Err(error) => return Err(Failure::environment(error)),
    }
    let timing = LeaseTiming { lease, ..LeaseTiming::default() };
    let instance = random().map_err(Failure::environment)?;
    let store = SharedStore::start(etcd, timing, instance).map_err(Failure::environment)?;
    let service = MetadataService::standing_by(core, store, endpoint, listeners, config.switch_ids())
        .known_as(name, config.metadata_instances());
    let source = Source::Metadata(service.inquirer());
    Ok(Prepared { role: Box::new(move |stop| service.run(stop).map_err(|error| error.to_string())), source })
}

/// `nicekv metadata`
pub(crate) fn run_metadata(
    config: &ClusterConfig,
    name: &str,
    metrics: MetricsArguments,
) -> Result<(), Failure> {
    let all = config.metadata.all();
    let instance = named(&all, name, "instance of the metadata service", |instance| &instance.name)?;
    let InstanceSection { address, control, metrics: of_file, .. } = instance;
    Needs::of_process().metadata(config.switches.len()).check()?;
    let listening = (KnownSockets::of(name).instance(config, instance), config.metadata_controls());
    let address = SocketAddrV4::new(*address, config.port);
    let endpoint = UdpEndpoint::bind(address).map_err(bind_error("the metadata service", address))?;
    let listen =
        |&address: &SocketAddrV4| listen(address).map_err(bind_error("the metadata service", address));
    let listeners = control.iter().map(listen).collect::<Result<_, _>>()?;
    let metrics = metrics.or(*of_file);
    if config.metadata.store == Store::Etcd {
        return run_alone(name, prepare_shared(config, name, endpoint, listeners)?, metrics, listening);
    }
    let directory = open_directory(&config.metadata.data_directory(), config.cluster()?, "metadata")?;
    run_alone(name, prepare_metadata(config, Some(directory), endpoint, listeners)?, metrics, listening)
}

/// `nicekv node`
pub(crate) fn run_node(config: &ClusterConfig, name: &str, metrics: MetricsArguments) -> Result<(), Failure> {
    let section = named(&config.nodes, name, "node", |node| &node.name)?;
    Needs::of_process().node(section.data_directory.is_some()).check()?;
    let address = SocketAddrV4::new(section.address, config.port);
    let endpoint = UdpEndpoint::bind(address).map_err(bind_error(name, address))?;
    let listener = listen(address).map_err(bind_error(name, address))?;
    let directory = match &section.data_directory {
        Some(path) => {
            let directory = open_directory(path, config.cluster()?, name)?;
            let reserves = Reserves::of(path, 1, section.reserve_mib)?;
            reserves.shortage(&[path])?.map_or(Ok(()), |line| say(format_args!("{line}")))?;
            Some((directory, reserves.options()))
        }
        None => None,
    };
    let node = prepare_node(config, section, directory, endpoint.into(), listener)?;
    let listening = (KnownSockets::of(name).node(config, section), config.metadata_controls());
    run_alone(name, node, metrics.or(section.metrics), listening)
}

/// `nicekv switch`
pub(crate) fn run_switch(
    config: &ClusterConfig,
    name: &str,
    metrics: MetricsArguments,
) -> Result<(), Failure> {
    let section = named(&config.switches, name, "switch", |switch| &switch.name)?;
    let link = AgentLink::new(name, &section.control);
    let (source, metrics) = (Source::Switch(name.to_owned(), link.inquirer()), metrics.or(section.metrics));
    let memory = Some(open_term(open_directory(&section.data_directory(), config.cluster()?, name)?)?);
    let vrings = config.vrings()?;
    let listening = (KnownSockets::of(name).switch(config, section), section.control.clone());
    let router_mac = match section.kind() {
        SwitchKind::Kernel { router_mac } => router_mac,
        SwitchKind::OpenFlow { controller, router_mac } => {
            let listener = listen(controller).map_err(bind_error(name, controller))?;
            let fabric = Fabric {
                vrings,
                router_mac: router_mac.0,
                ports: BTreeSet::new(),
                trunks: trunks(section).map(|port| port.number).collect(),
                requests_per_second: Some(section.requests_per_second()),
                learns: true,
            };
            let mut agent = switch_agent(OpenFlowSwitch::new(listener, fabric), memory);
            let role: Role =
                Box::new(move |stop| run_openflow(link, &mut agent, stop).map_err(|error| error.to_string()));
            return run_alone(name, Prepared { role, source }, metrics, listening);
        }
        SwitchKind::UserSpace => {
            let device = section.device();
            let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, config.port);
            let endpoint =
                UdpEndpoint::bind_switch(device, config.port).map_err(bind_error(name, address))?;
            let switch =
                UserSpaceSwitch::new(endpoint, vrings, link, memory).map_err(Failure::environment)?;
            let role: Role = Box::new(move |stop| switch.run(stop).map_err(|error| error.to_string()));
            return run_alone(name, Prepared { role, source }, metrics, listening);
        }
    };
    let ports = section.ports.iter().map(|port| {
        let index = interface_index(device(port));
        let index =
            index.map_err(|error| Failure::Environment(format!("interface {}: {error}", device(port))))?;
        let is_trunk = port.trunk.is_some();
        Ok(Port { index: port.number, ifindex: index, hook: port.hook, is_trunk })
    });
    let ports = ports.collect::<Result<Vec<_>, Failure>>()?;
    let switch = KernelSwitch::load(vrings, router_mac.0, &ports).map_err(Failure::environment)?;
    let mut watched = Vec::new();
    for ((_, hook), (port, section)) in switch.hooks().zip(ports.iter().zip(&section.ports)) {
        let name = format!("port {} ({})", section.number, device(section));
        say(format_args!("{name}: {hook}"))?;
        if hook != Hook::None {
            watched.push(WatchedPort { ifindex: port.ifindex, name, is_seen: hook == Hook::Tc });
        }
    }
    let trunk_links = TrunkLinks::of(trunks(section).map(|port| (port.number, device(port).to_owned())));
    let trunk_links =
        trunk_links.map_err(|error| Failure::Environment(format!("cannot watch the trunks: {error}")))?;
    let link = link.seeing_by(ClientTracer::at_ports(watched)).watching(trunk_links);
    let mut agent = switch_agent(switch, memory);
    let role: Role =
        Box::new(move |stop| run_agent(link, &mut agent, stop).map_err(|error| error.to_string()));
    run_alone(name, Prepared { role, source }, metrics, listening)
}

/// The ports that lead to other switches.
fn trunks(section: &SwitchSection) -> impl Iterator<Item = &PortSection> {
    section.ports.iter().filter(|port| port.trunk.is_some())
}

/// The interface of a kernel switch's port.
fn device(port: &PortSection) -> &str {
    port.device.as_deref().expect("ports of a kernel switch were checked")
}

/// Opens the file with the newest term of a metadata leader that a switch has obeyed.
pub(crate) fn open_term(directory: DataDirectory) -> Result<TermFile, Failure> {
    TermFile::open(Arc::new(RealFiles), directory).map_err(Failure::environment)
}

/// `nicekv gateway`; `flags` override the file.
pub(crate) fn run_gateway(
    config: &ClusterConfig,
    name: &str,
    flags: &GatewayFlags,
    metrics: MetricsArguments,
) -> Result<(), Failure> {
    let section = named(&config.gateways, name, "gateway", |gateway| &gateway.name)?;
    let settings = flags.settings(Some(section))?;
    let connections_max = Needs::of_process().gateway(settings.threads()).connections()?;
    let listeners = settings.bind(section.listen.map(Into::into))?;
    let keyspaces = config.client_keyspaces()?;
    let sockets = KnownSockets::of(name).gateway(name, &listeners, &settings);
    if let Some(missing) = crate::gateway::missing_route(&keyspaces) {
        say(format_args!("{name}: {missing}"))?;
    }
    let known = (keyspaces, config.metadata_controls());
    let listening = (sockets, config.metadata_controls());
    let gateway = crate::gateway::prepare(
        name,
        listeners,
        Ipv4Addr::UNSPECIFIED,
        None,
        known,
        (settings, connections_max),
    )?;
    run_threads(name, gateway, metrics.or(section.metrics), listening)
}

/// The sockets of a process, and the metadata instances that they are reported to.
type Listening = (KnownSockets, Vec<SocketAddrV4>);

/// Runs one role until the process gets a signal.
fn run_alone(
    name: &str,
    prepared: Prepared,
    metrics: MetricsArguments,
    listening: Listening,
) -> Result<(), Failure> {
    let Prepared { role, source } = prepared;
    run_threads(name, Prepared { role: vec![role], source }, metrics, listening)
}

/// Runs a role of several threads until the process gets a signal.
fn run_threads(
    name: &str,
    prepared: Prepared<Vec<Role>>,
    metrics: MetricsArguments,
    (sockets, instances): Listening,
) -> Result<(), Failure> {
    let Prepared { role: roles, source } = prepared;
    let kind = source.name().0;
    let watcher = watcher(vec![source.clone()]);
    let metrics = metrics.bind()?;
    let sockets = sockets.metrics(name, metrics.address());
    let (metrics, reporter) = (metrics.role(vec![source])?, sockets::reporter(sockets, instances));
    let stop = Stop::new();
    stop.on_signals().map_err(Failure::environment)?;
    let threads: Vec<_> = roles
        .into_iter()
        .chain(metrics)
        .chain([watcher, reporter])
        .filter_map(|role| spawn_role(&stop, name, role))
        .collect();
    say(format_args!("running {name}"))?;
    emit(kind, name, Event::new(Level::Info, "started").with("version", env!("CARGO_PKG_VERSION")));
    notify::ready()
        .map_err(|error| Failure::Environment(format!("cannot notify the service manager: {error}")))?;
    ended(&stop, threads)?;
    emit(kind, name, Event::new(Level::Info, "stopped"));
    say(format_args!("stopped {name}"))
}

fn named<'a, T>(
    sections: &'a [T],
    name: &str,
    what: &str,
    name_of: impl Fn(&T) -> &String,
) -> Result<&'a T, Failure> {
    let found = sections.iter().find(|section| name_of(section) == name);
    found.ok_or_else(|| Failure::Environment(format!("the configuration has no {what} named {name:?}")))
}

fn interface_index(device: &str) -> std::io::Result<u32> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(rustix::net::netdevice::name_to_index(&socket, device)?)
}

//! `nicekv up`: a whole cluster in one process, on the loopback interface, without privileges.
//!
//! ```text
//!   native clients ────────────▶ 127.10.x.y, 127.11.x.y ─▶ switch ─▶ 127.20.0.N (node N)
//!   Redis clients ─▶ gateway ─▶ client ─▶ edge of the switch ─────────▶    │ heartbeats
//!                                           ▲ tables                       ▼
//!                                           └──────────────── 127.20.255.1 (metadata)
//! ```
//!
//! All of 127.0.0.0/8 is local on Linux, so the addresses of the virtual rings are real addresses. Several clusters can run side by side
//! on different ports.

use crate::descriptors::Needs;
use crate::gateway::{self, GatewayFlags, RespAddresses};
use crate::logs::{self, LogArguments};
use crate::metrics::{self, MetricsArguments};
use crate::reserves::Reserves;
use crate::role::{Prepared, Role, ended, say, spawn, spawn_role};
use crate::roles::{self, open_directory};
use crate::sockets::{self, KnownSockets};
use clap::{Args, ValueEnum};
use futures_executor::block_on;
use nicekv_client::OperationError;
use nicekv_client::facade::{Client, ClientError};
use nicekv_config::address::{self, bind_error};
use nicekv_config::{
    ClusterConfig, HotArguments, KeyspaceSection, MacAddress, MetadataSection, NodeSection, Replication,
    SwitchSection, TimingSection,
};
use nicekv_config::{LogLevel, LogSection, ReserveMib};
use nicekv_gateway::Listeners;
use nicekv_metadata::{OLDER_STATE, Status};
use nicekv_metrics::Source;
use nicekv_operator::failure::Failure;
use nicekv_operator::{client, discovery, keyspaces};
use nicekv_proto::Expiry;
use nicekv_proto::chunk::Round;
use nicekv_proto::placement::Vrings;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{
    AgentLink, Edges, Stop, UdpEndpoint, Uplink, UserSpaceSwitch, admin, in_words, listen, random_id,
    start_client,
};
use nicekv_store::{DataDirectory, Expected, Files, RealFiles};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod layout;
#[cfg(test)]
mod tests;

use layout::Layout;

const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 20, 255, 1);
/// Maximum attempts to find a port that is free for both UDP and TCP.
const PORT_TRIES_MAX: usize = 16;
/// If the cluster is not ready within this time, `up` fails and prints the reason.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between readiness checks.
const READY_ASK: Duration = Duration::from_millis(250);
const PROBE_KEY: &[u8] = b"\0nicekv up: probe";
/// Default address for Redis clients.
const RESP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6379);
const SWITCH: &str = "switch";
const GATEWAY: &str = "gateway";
/// Timeouts are long, because the nodes share a process: no node fails alone, and a busy machine
/// must not look like a dead node. The lease is short, because a restart waits for it to expire.
/// Handoffs are disabled, because no node can be away alone.
const TIMING: TimingSection = TimingSection {
    heartbeat_ms: 40,
    heartbeats_missed: 50,
    lease_ms: 400,
    probe_ms: 170,
    grace_heartbeats: 500,
    handoffs: false,
    handoff_delay_ms: 0,
    rebalance_delay_ms: 5000,
    balance_period_ms: 10_000,
    balance_requests_min: 1000,
    collect_interval_ms: 3_600_000,
    target_timeout_ms: 600_000,
};

/// `nicekv up`
#[derive(Args)]
pub(crate) struct UpArguments {
    /// Number of storage nodes [default: as in the data directory, or 3]
    ///
    /// If the data directory has fewer nodes, new ones are added and partitions move to them.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    nodes: Option<u8>,
    /// Copies of each value (R), at most the number of nodes [default: as in the data directory, or 3]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    replicas: Option<u8>,
    /// Replication protocol [default: as in the data directory, or multicast]
    #[arg(long, value_enum)]
    replication: Option<Replication>,
    /// Write quorum size (k) of --replication quorum: number of replicas that store a put before it
    /// is acknowledged; a get asks R - k + 1
    #[arg(long, value_name = "K")]
    write_set: Option<u8>,
    /// Additional keyspace, such as sessions=replication=quorum,write-set=2, orders=range,chain or carts=replicas=2; may be repeated
    #[arg(long = "keyspace", value_name = "NAME=SPEC", long_help = keyspaces::spec_help())]
    keyspaces: Vec<String>,
    #[command(flatten)]
    hot: HotArguments,
    /// Data directory; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = discovery::DATA_DIRECTORY)]
    data_dir: PathBuf,
    /// Disk space in MiB that each node sets aside so that deletes still work on a full disk, at
    /// least 4 [default: 64, or less on a small disk]
    #[arg(long, value_name = "N")]
    reserve_mib: Option<ReserveMib>,
    /// Storage engine
    #[arg(long, value_enum, default_value = "durable")]
    engine: Engine,
    /// Address for Redis clients without TLS [default: 127.0.0.1:6379, or none with --tls-resp]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::parse)]
    resp: Option<SocketAddr>,
    #[command(flatten)]
    gateway: GatewayFlags,
    #[command(flatten)]
    metrics: MetricsArguments,
    #[command(flatten)]
    log: LogArguments,
    /// UDP and TCP port of the virtual rings, the nodes and the metadata service; 0: any free port
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// On disk: acknowledged writes survive a power loss
    Durable,
    /// In memory: data are lost when the process ends
    Memory,
}

pub(crate) fn run(arguments: &UpArguments) -> Result<(), Failure> {
    logs::begin(arguments.log.or(LogSection { level: LogLevel::Warn, ..LogSection::default() }))?;
    let stop = Stop::new();
    stop.on_signals().map_err(Failure::environment)?;
    // Check everything before anything is created.
    let layout = Layout::of(arguments)?;
    configuration(arguments, &layout, 1, 0)?.metadata_config()?;
    let settings = arguments.gateway.settings(None)?;
    let connections_max = needs(arguments, &layout, &settings)?.connections()?;
    let redis = settings.bind(arguments.resp.or((!settings.has_tls()).then_some(RESP)))?;
    let metrics = arguments.metrics.bind()?;
    let root = Root::open(arguments)?;
    let sockets = Sockets::bind(arguments, &layout)?;
    let config = configuration(arguments, &layout, sockets.port, root.cluster)?;
    let endpoint = sockets.metadata_address;
    let (data, root_path) = (root.describe(), root.path());
    let (mut threads, edges, sources) = start(&config, root, sockets, &stop)?;
    say(format_args!("starting {} nodes, {data}", config.nodes.len()))?;
    let place = root_path.as_deref();
    let settings = (settings, connections_max);
    let front = Front { redis, edges: &edges, settings, metrics, sources, layout: &layout, place };
    match serve(&config, endpoint, front, &stop, &mut threads) {
        Ok(_announcement) => {
            ended(&stop, threads)?;
            say(format_args!("stopped, {data}"))
        }
        Err(failure) => {
            stop.stop();
            // Any further failure is a consequence of this one.
            let _ = ended(&stop, threads);
            Err(failure)
        }
    }
}

/// The number of file descriptors that all roles need.
fn needs(arguments: &UpArguments, layout: &Layout, settings: &gateway::Settings) -> Result<Needs, Failure> {
    let keyspaces = configuration(arguments, layout, 1, 0)?.client_keyspaces()?.len();
    let others = Needs::of_process().metadata(1).switch().gateway(settings.threads()).clients(keyspaces);
    Ok(layout.numbers().fold(others, |needs, _| needs.node(arguments.engine == Engine::Durable)))
}

/// The configuration of the cluster on the loopback interface.
fn configuration(
    arguments: &UpArguments,
    layout: &Layout,
    port: u16,
    cluster: u128,
) -> Result<ClusterConfig, Failure> {
    let Vrings { unicast, multicast, .. } = Vrings::on_loopback(port);
    let node = |number: u8| NodeSection {
        name: layout::node_name(number),
        id: number.into(),
        address: Ipv4Addr::new(127, 20, 0, number),
        mac: MacAddress([2, 0, 0, 0, 0, number]),
        switch_port: number.into(),
        switch: None,
        data_directory: None,
        metrics: None,
        spare: layout.added.contains(&number),
        kernel_get_mib: NodeSection::kernel_get_mib(),
        copy_mib_per_second: NodeSection::copy_mib_per_second(),
        reserve_mib: arguments.reserve_mib,
        value_mib_max: arguments.gateway.gateway_value_mib.unwrap_or(NodeSection::value_mib_max()),
        busy_poll_us: NodeSection::busy_poll_us(),
        coordinates: false,
    };
    let control = SocketAddrV4::new(METADATA_ADDRESS, port);
    let KeyspaceSection { replication, write_set, .. } = KeyspaceSection::of(&layout.default);
    Ok(ClusterConfig {
        role: None,
        cluster_id: format!("{cluster:032x}"),
        port,
        replicas: layout.default.replicas,
        replication,
        write_set,
        partition_bits: layout.default.partitions.ilog2() as u8,
        unicast_vring: unicast,
        multicast_vring: multicast,
        group_ring: None,
        link_mbit_per_second: ClusterConfig::link_mbit_per_second(),
        clients: None,
        metadata: MetadataSection {
            address: METADATA_ADDRESS,
            control: vec![control],
            ..MetadataSection::default()
        },
        nodes: layout.numbers().map(node).collect(),
        switches: vec![user_space_switch(control)],
        gateways: vec![],
        keyspaces: layout.keyspaces.iter().map(KeyspaceSection::of).collect(),
        timing: TIMING,
        hot: arguments.hot.section(),
        log: LogSection::default(),
    })
}

fn user_space_switch(control: SocketAddrV4) -> SwitchSection {
    SwitchSection {
        name: SWITCH.into(),
        control: vec![control],
        router_mac: None,
        openflow: None,
        requests_per_second: None,
        ports: vec![],
        device: Some("lo".into()),
        hosts: vec![],
        address: None,
        data_directory: None,
        metrics: None,
    }
}

/// The data directory of the cluster, locked by this process; no directory if the data are in
/// memory.
struct Root {
    cluster: u128,
    directory: Option<DataDirectory>,
}

impl Root {
    fn open(arguments: &UpArguments) -> Result<Self, Failure> {
        if arguments.engine == Engine::Memory {
            DataDirectory::refuse_data(&RealFiles, &arguments.data_dir).map_err(Failure::environment)?;
            return Ok(Self { cluster: random_id().map_err(Failure::environment)?, directory: None });
        }
        let files: Arc<dyn Files> = Arc::new(RealFiles);
        let expected = Expected {
            cluster_id: None,
            owner: "nicekv up",
            cluster_id_if_new: random_id().map_err(Failure::environment)?,
            storage_id_if_new: random_id().map_err(Failure::environment)?,
        };
        let directory =
            DataDirectory::open(&files, &arguments.data_dir, expected).map_err(Failure::environment)?;
        Ok(Self { cluster: directory.cluster_id(), directory: Some(directory) })
    }

    /// Where the data are, in words.
    fn describe(&self) -> String {
        match &self.directory {
            None => "data in memory, lost when the process ends".into(),
            Some(directory) => {
                let path = directory.path();
                format!("data in {}", std::path::absolute(path).unwrap_or(path.into()).display())
            }
        }
    }

    fn path(&self) -> Option<PathBuf> {
        let path = self.directory.as_ref().map(DataDirectory::path)?;
        Some(std::fs::canonicalize(path).unwrap_or(path.into()))
    }

    /// Disk space that the nodes set aside; `None` if the data are in memory.
    fn reserves(&self, config: &ClusterConfig) -> Result<Option<Reserves>, Failure> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let nodes = &config.nodes;
        let reserve = nodes.first().and_then(|node| node.reserve_mib);
        let reserves = Reserves::of(directory.path(), nodes.len(), reserve)?;
        let directories: Vec<_> = nodes.iter().map(|node| directory.path().join(&node.name)).collect();
        if let Some(line) = reserves.shortage(&directories)? {
            say(format_args!("{line}"))?;
        }
        Ok(Some(reserves))
    }

    /// Opens the subdirectory of a role.
    fn open_role(&self, name: &str) -> Result<Option<DataDirectory>, Failure> {
        let path = self.directory.as_ref().map(|directory| directory.path().join(name));
        path.map(|path| open_directory(&path, self.cluster, name)).transpose()
    }
}

/// The sockets of all roles, all on the same port.
struct Sockets {
    port: u16,
    switch: UdpEndpoint,
    metadata: (UdpEndpoint, TcpListener),
    metadata_address: SocketAddrV4,
    nodes: Vec<(UdpEndpoint, TcpListener)>,
}

impl Sockets {
    fn bind(arguments: &UpArguments, layout: &Layout) -> Result<Self, Failure> {
        let mut last = None;
        for _ in 0..PORT_TRIES_MAX {
            match Self::try_bind(arguments, layout) {
                Ok(sockets) => return Ok(sockets),
                Err(failure) if arguments.port != 0 => return Err(failure),
                // The port was free for UDP but not for TCP: try another one that the kernel
                // chooses.
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.expect("at least one attempt"))
    }

    fn try_bind(arguments: &UpArguments, layout: &Layout) -> Result<Self, Failure> {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, arguments.port);
        let switch = UdpEndpoint::bind_switch("lo", arguments.port).map_err(bind_error("the switch", any))?;
        let port = switch.local_address().port();
        switch.share_port(true).map_err(Failure::environment)?;
        let bind = |what: &str, ip: Ipv4Addr| {
            let address = SocketAddrV4::new(ip, port);
            let endpoint = UdpEndpoint::bind_beside_switch(address).map_err(bind_error(what, address))?;
            let socket = listen(address).map_err(bind_error(what, address))?;
            Ok::<_, Failure>((endpoint, socket))
        };
        let metadata = bind("the metadata service", METADATA_ADDRESS)?;
        let node = |number| bind("a node", Ipv4Addr::new(127, 20, 0, number));
        let nodes = layout.numbers().map(node).collect::<Result<_, _>>()?;
        switch.share_port(false).map_err(Failure::environment)?;
        let metadata_address = SocketAddrV4::new(METADATA_ADDRESS, port);
        Ok(Self { port, switch, metadata, metadata_address, nodes })
    }
}

/// The started roles: their threads, the switch's edges for the gateway, and the sources of
/// metrics.
type Started = (Vec<JoinHandle<()>>, Edges, Vec<Source>);

/// Starts all roles except the gateway.
fn start(config: &ClusterConfig, root: Root, sockets: Sockets, stop: &Stop) -> Result<Started, Failure> {
    let link = AgentLink::new(SWITCH, &[sockets.metadata_address]);
    let source = Source::Switch(SWITCH.into(), link.inquirer());
    let memory = root.open_role(SWITCH)?.map(roles::open_term).transpose()?;
    let mut switch = UserSpaceSwitch::new(sockets.switch, config.metadata_config()?.vrings(), link, memory)
        .map_err(Failure::environment)?;
    let edges = switch.edges();
    let (endpoint, listener) = sockets.metadata;
    let metadata = root.open_role("metadata")?;
    let metadata_is_new = metadata.as_ref().is_some_and(DataDirectory::is_new);
    // The metadata service is prepared first: it refuses a configuration that contradicts the
    // stored state before any node's directory is created.
    let metadata = roles::prepare_metadata(config, metadata, endpoint, vec![listener])?;
    let switch: Role = Box::new(move |stop| switch.run(stop).map_err(|error| error.to_string()));
    let mut prepared =
        vec![(SWITCH.into(), Prepared { role: switch, source }), ("metadata".into(), metadata)];
    let reserves = root.reserves(config)?;
    for (section, (endpoint, listener)) in config.nodes.iter().zip(sockets.nodes) {
        let directory = root.open_role(&section.name)?;
        if metadata_is_new && directory.as_ref().is_some_and(|directory| !directory.is_new()) {
            // Only the metadata tell which node has the newest data.
            let line = format!(
                "{} has data, but the metadata are missing: restore the metadata directory",
                section.name
            );
            return Err(Failure::Environment(line));
        }
        let uplink = Uplink::on_edge(endpoint, &edges).map_err(Failure::environment)?;
        let directory = directory.zip(reserves.as_ref().map(Reserves::options));
        let node = roles::prepare_node(config, section, directory, uplink, listener)?;
        prepared.push((section.name.clone(), node));
    }
    let root = Arc::new(root);
    let spawn = |(name, prepared): (String, Prepared)| {
        let (owned, root, role) = (stop.clone(), root.clone(), prepared.role);
        let thread = spawn(stop, &name, move || {
            // Keeps the data directory locked until the last role has ended.
            let _root = root;
            role(&owned)
        });
        (thread, prepared.source)
    };
    let (threads, sources): (Vec<_>, _) = prepared.into_iter().map(spawn).unzip();
    Ok((threads.into_iter().flatten().collect(), edges, sources))
}

/// The parts that serve users: the gateway and the metrics endpoint.
struct Front<'a> {
    redis: Listeners,
    edges: &'a Edges,
    /// Settings of the gateway, and its connection limit.
    settings: (gateway::Settings, usize),
    metrics: metrics::Endpoint,
    /// Sources of metrics of the other roles.
    sources: Vec<Source>,
    layout: &'a Layout,
    /// The data directory, if any.
    place: Option<&'a Path>,
}

/// Waits until the cluster is ready, starts the gateway, and prints the "ready" line.
fn serve(
    config: &ClusterConfig,
    endpoint: SocketAddrV4,
    Front { redis, edges, settings, metrics, mut sources, layout, place }: Front<'_>,
    stop: &Stop,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<discovery::Announcement, Failure> {
    let sockets = KnownSockets::of_cluster(config, GATEWAY, &redis, &settings.0, metrics.address());
    let (resp, keyspaces) = (RespAddresses::of(&redis, settings.0.login())?, config.client_keyspaces()?);
    let known = (keyspaces.clone(), vec![endpoint]);
    let Prepared { role: gateway, source } =
        gateway::prepare(GATEWAY, redis, Ipv4Addr::LOCALHOST, Some(edges), known, settings)?;
    sources.push(source);
    threads.extend(spawn_role(stop, "log", logs::watch::watcher(sources.clone())));
    // Metrics are served before the cluster is ready, to show why it is not.
    let metrics = metrics.role(sources)?;
    threads.extend(metrics.and_then(|role| spawn_role(stop, "metrics", role)));
    threads.extend(spawn_role(stop, "listening", sockets::reporter(sockets, vec![endpoint])));
    wait_until_ready(endpoint, stop)?;
    let specs = config.checked_keyspaces()?;
    let mut is_full = false;
    for keyspace in &keyspaces {
        let (client, _) = start_client(stop, Ipv4Addr::LOCALHOST, *keyspace).map_err(Failure::environment)?;
        let has_objects = specs.iter().any(|spec| spec.id == keyspace.id && spec.chunks.is_some());
        match block_on(probe(&client.with_keyspace(keyspace.id), has_objects)) {
            // Gets and deletes still work on a full disk, and deletes free space: the cluster
            // starts.
            Err(NotProbed::Client(ClientError::Failed(OperationError::DiskFull))) => is_full = true,
            Err(NotProbed::Client(error)) => return Err(client::failed(error)),
            Err(NotProbed::Lost) => {
                let line = "a probe write was acknowledged but could not be read back";
                return Err(Failure::Operation(line.into()));
            }
            Ok(()) => {}
        }
    }
    if is_full {
        say(format_args!("warning: puts are refused, {}", OperationError::DiskFull))?;
    }
    threads.extend(gateway.into_iter().filter_map(|role| spawn_role(stop, "gateway", role)));
    let announcement =
        discovery::announce(endpoint, resp.preferred()?, place).map_err(Failure::environment)?;
    let (nodes, replicas) = (config.nodes.len(), config.replicas);
    let resp_words = resp.ready_words();
    say(format_args!("ready {resp_words} endpoint={endpoint} nodes={nodes} replicas={replicas}"))?;
    layout.add_nodes(config, endpoint)?;
    let command = resp.redis_cli()?;
    say(format_args!("connect with `{command}` or `nicekv put KEY VALUE`; Ctrl-C stops the cluster"))?;
    Ok(announcement)
}

fn wait_until_ready(endpoint: SocketAddrV4, stop: &Stop) -> Result<(), Failure> {
    let started = Instant::now();
    while admin::ask(&[endpoint], &AdminRequest::Ready, READY_ASK).is_err() {
        if stop.is_stopped() {
            return Err(Failure::Environment(
                stop.failure().unwrap_or("stopped before the cluster was ready".into()),
            ));
        }
        let is_late = started.elapsed() > READY_TIMEOUT;
        let reason = match why_not_ready(endpoint, if is_late { READY_TIMEOUT } else { READY_ASK }) {
            Err(_) if !is_late => continue,
            reason => reason?,
        };
        if reason.starts_with(OLDER_STATE) {
            return Err(Failure::Environment(reason));
        }
        if is_late {
            return Err(Failure::Environment(format!(
                "not ready after {}: {reason}",
                in_words(READY_TIMEOUT)
            )));
        }
    }
    Ok(())
}

fn why_not_ready(endpoint: SocketAddrV4, timeout: Duration) -> Result<String, Failure> {
    let status = admin::ask(&[endpoint], &AdminRequest::Status, timeout).map_err(Failure::environment)?;
    let status: Status = serde_json::from_slice(&status).map_err(Failure::environment)?;
    Ok(status.why_not_ready.unwrap_or("the metadata service gives no reason".into()))
}

enum NotProbed {
    Client(ClientError),
    /// The probe was acknowledged, but a get does not return it.
    Lost,
}

impl From<ClientError> for NotProbed {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Writes, reads and deletes a probe key.
async fn probe(client: &Client, has_objects: bool) -> Result<(), NotProbed> {
    let version = if has_objects {
        // The probe references no chunks that garbage collection could have deleted.
        client.put_stamped(PROBE_KEY, b"probe", Round(u64::MAX), None).await
    } else {
        client.put(PROBE_KEY, b"probe", Expiry::Never).await.map(Some)
    };
    let version = version?;
    let read = client.get(PROBE_KEY).await?;
    if read.map(|read| read.version) != version || version.is_none() {
        return Err(NotProbed::Lost);
    }
    client.delete(PROBE_KEY).await?;
    Ok(())
}

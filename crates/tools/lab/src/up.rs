//! `nicekv lab up` and `down`.
//!
//! ```text
//!   up:   lock ─▶ state "starting" ─▶ files ─▶ namespaces, links ─▶ processes ─▶ ready? ─▶ state "running"
//!                                                                        └─ no ─▶ as down
//!   down: lock ─▶ processes in the namespaces ─▶ namespaces ─▶ files ─▶ state ─▶ lock
//! ```
//!
//! `down` does not depend on how far `up` came: everything of the lab is in one of its namespaces
//! or files. Each step can be repeated.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{
    KeyspaceDefaults, KeyspaceSpec, Protocol, RingsBase, parse_keyspaces, partitions_for,
};
use nicekv_switch_xdp::Hook;

use crate::arguments::{ControlArguments, Engine, MetadataStore, Mtu, NetworkArguments, UpArguments};
use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::launch;
use crate::layout::{Layout, SWITCHES_MAX, Shape, hosts};
use crate::lock::Lock;
use crate::network::LinkSettings;
use crate::plan::{Plan, PlannedHot, Roles};
use crate::ready;
use crate::scope::Scope;
use crate::state::{Faults, HostState, LabState, Phase, Unplugged};
use crate::topology::{
    Fabric, HOSTS_OF_A_KIND_MAX, Host, INSTANCES_MAX, RESP, VRINGS, WIRE_PORT, control_hosts,
    open_vswitch_hosts,
};
use crate::wait::{Progress, fail_if, interruption};
use crate::{etcd, network, open_vswitch};

/// Timeout for the tools of a killed command to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn up(scope: &Scope, arguments: &UpArguments, roles: Roles<'_>) -> Result<()> {
    let state = bring_up(scope, arguments, roles, &*interruption()?)?;
    let clients = state.clients.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
    let (resp, nodes, replicas) = (state.resp, arguments.nodes(), arguments.replicas);
    println!("ready resp={resp} inside={clients} nodes={nodes} replicas={replicas}");
    Ok(())
}

/// Creates the lab, and returns when it is ready. If that fails, removes everything that was
/// created.
pub(crate) fn bring_up(
    scope: &Scope,
    arguments: &UpArguments,
    roles: Roles<'_>,
    interrupted: &AtomicBool,
) -> Result<LabState> {
    check(arguments)?;
    keyspaces(arguments)?;
    refuse_second(scope)?;
    let lock = Lock::take_within(scope, LOCK_TIMEOUT)?;
    refuse_second(scope)?;
    let mut state = new_state(scope, arguments, roles.program);
    refuse_foreign_namespaces(scope, &state)?;
    state.save(scope)?;
    let mut progress = Progress::of("lab up");
    let built = build(scope, &lock, arguments, roles, &mut state, interrupted, &mut progress);
    let ready = built.and_then(|()| ready::wait(scope, &state, interrupted, &mut progress));
    let running = ready.and_then(|()| {
        state.phase = Phase::Running;
        state.save(scope)
    });
    if let Err(error) = running {
        // The first error is returned; a later `down` removes what cannot be removed now.
        if let Err(error) = remove(scope, lock) {
            eprintln!("nicekv: the lab could not be removed, try `nicekv lab down`: {error}");
        }
        return Err(error);
    }
    Ok(state)
}

fn check(arguments: &UpArguments) -> Result<()> {
    let &UpArguments { spares, replicas, .. } = arguments;
    let (nodes, clients) = (arguments.nodes(), arguments.clients());
    for (what, count) in [("nodes", nodes), ("clients", clients), ("replicas", replicas)] {
        if count == 0 || count > HOSTS_OF_A_KIND_MAX {
            return Err(LabError::Count { what, count, limit: HOSTS_OF_A_KIND_MAX });
        }
    }
    if nodes + spares > HOSTS_OF_A_KIND_MAX {
        return Err(LabError::Count {
            what: "nodes and spares",
            count: nodes + spares,
            limit: HOSTS_OF_A_KIND_MAX,
        });
    }
    let switches = arguments.network.switch_count();
    if switches == 0 || switches > SWITCHES_MAX {
        return Err(LabError::Count { what: "switches", count: switches, limit: SWITCHES_MAX });
    }
    if switches > 1 && arguments.network.fabric == Fabric::Plain {
        return Err(LabError::SwitchesOnPlain);
    }
    if arguments.network.switch == DataPlane::OpenFlow {
        open_vswitch::find()?;
        let NetworkArguments { fabric, topology, mtu, .. } = arguments.network;
        if fabric == Fabric::Plain || topology == Shape::Turbokv || mtu == Mtu::Jumbo {
            return Err(LabError::OpenFlowNetwork);
        }
    }
    if arguments.network.mtu == Mtu::Jumbo && arguments.network.switch.hook() == Some(Hook::Xdp) {
        return Err(LabError::JumboAtXdp);
    }
    let ControlArguments { instances, store } = arguments.control;
    if instances == 0 || instances > INSTANCES_MAX {
        return Err(LabError::Count {
            what: "instances of the metadata service",
            count: instances,
            limit: INSTANCES_MAX,
        });
    }
    match store {
        MetadataStore::File if instances > 1 => return Err(LabError::ManyInstances),
        MetadataStore::Etcd => etcd::find()?,
        MetadataStore::File => {}
    }
    if replicas > nodes {
        return Err(LabError::TooFewNodes { replicas, nodes });
    }
    if arguments.engine == Engine::Memory && arguments.data_dir.is_some() {
        return Err(LabError::MemoryInDirectory);
    }
    Ok(())
}

/// The defaults of a keyspace, which its specification may override.
fn defaults(arguments: &UpArguments, id: KeyspaceId) -> KeyspaceDefaults {
    let (replicas, partitions) = (arguments.replicas, partitions_for(arguments.nodes()));
    KeyspaceDefaults { id, replicas, partitions, rings: RingsBase::Network }
}

/// The keyspaces in addition to the default one.
fn keyspaces(arguments: &UpArguments) -> Result<Vec<KeyspaceSpec>> {
    let texts = arguments.keyspaces.iter().map(String::as_str);
    Ok(parse_keyspaces(texts, &defaults(arguments, KeyspaceId(1)))?)
}

/// The default keyspace and the others.
pub(crate) fn all_keyspaces(arguments: &UpArguments) -> Result<Vec<KeyspaceSpec>> {
    let mut default = KeyspaceSpec::of(&defaults(arguments, KeyspaceId::DEFAULT));
    if let Some(write_set) = arguments.write_set {
        default.protocol = Protocol::Quorum { write_set };
    }
    Ok([vec![default], keyspaces(arguments)?].concat())
}

fn refuse_second(scope: &Scope) -> Result<()> {
    let path = scope.state_file();
    if path.exists() { Err(LabError::AlreadyThere { path }) } else { Ok(()) }
}

fn refuse_foreign_namespaces(scope: &Scope, state: &LabState) -> Result<()> {
    let namespaces = state.hosts.iter().map(|host| host.name).chain([Host::Fabric]);
    match namespaces.map(|host| scope.namespace(host)).find(|namespace| namespace.exists()) {
        Some(namespace) => Err(LabError::ForeignNamespace { name: namespace.name().into() }),
        None => Ok(()),
    }
}

fn new_state(scope: &Scope, arguments: &UpArguments, program: &Path) -> LabState {
    let nodes = arguments.nodes() + arguments.spares;
    let NetworkArguments { topology, switches, fabric, .. } = arguments.network;
    let mut hosts = hosts(nodes, arguments.clients(), fabric, Layout::new(topology, switches, nodes));
    let ControlArguments { instances, store } = arguments.control;
    hosts.extend(control_hosts(instances, store == MetadataStore::Etcd));
    if arguments.network.switch == DataPlane::OpenFlow {
        hosts.extend(open_vswitch_hosts(switches as u8));
    }
    let metadata = hosts.iter().filter(|host| host.instance().is_some());
    let metadata = metadata.map(|host| SocketAddrV4::new(host.address(), WIRE_PORT)).collect();
    let clients = hosts.iter().copied().filter(|host| matches!(host, Host::Client(_))).collect();
    let is_spare = |name| matches!(name, Host::Node(number) if usize::from(number) >= arguments.nodes());
    let host = |name| HostState { name, process: None, is_spare: is_spare(name) };
    LabState {
        phase: Phase::Starting,
        namespace_prefix: scope.namespace_prefix(),
        metadata,
        resp: RESP,
        clients,
        program: program.into(),
        config: scope.directory().join("config.toml"),
        hosts: hosts.into_iter().map(host).collect(),
        topology,
        unplugged: Unplugged::new(),
        faults: Faults::new(),
        fabric,
        switch: arguments.network.switch.on_veth(),
    }
}

fn build(
    scope: &Scope,
    lock: &Lock,
    arguments: &UpArguments,
    roles: Roles<'_>,
    state: &mut LabState,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<()> {
    create_files(scope, arguments, roles, state)?;
    let vrings = vrings(&keyspaces(arguments)?);
    if state.fabric == Fabric::Plain {
        network::add_plain_host(lock, scope, Host::Fabric, arguments.network.mtu, &vrings)?;
    }
    let layout = state.layout();
    let link_settings = LinkSettings { data_plane: state.switch, mtu: arguments.network.mtu };
    for (built, host) in state.hosts.iter().enumerate() {
        fail_if(interrupted)?;
        progress
            .report(|| format!("{built} of {} hosts have a network namespace and links", state.hosts.len()));
        match state.fabric {
            Fabric::Switch => network::add_host(lock, scope, layout, host.name, link_settings, &vrings)?,
            Fabric::Plain => network::add_plain_host(lock, scope, host.name, link_settings.mtu, &vrings)?,
        }
    }
    launch::start_all(scope, state, interrupted, progress)
}

/// The vrings for which hosts get routes.
fn vrings(further: &[KeyspaceSpec]) -> Vec<String> {
    let further = further.iter().flat_map(|spec| [spec.unicast, spec.multicast]);
    VRINGS.iter().map(ToString::to_string).chain(further.map(|ring| format!("{ring}/16"))).collect()
}

fn create_files(scope: &Scope, arguments: &UpArguments, roles: Roles<'_>, state: &LabState) -> Result<()> {
    let logs = scope.directory().join("logs");
    fs::create_dir_all(&logs).map_err(LabError::io("create", &logs))?;
    let data = match arguments.engine {
        Engine::Memory => None,
        Engine::Durable => Some(data_directory(scope, arguments.data_dir.as_deref())?),
    };
    let hosts: Vec<Host> = state.hosts.iter().map(|host| host.name).collect();
    let plan = Plan {
        write_set: arguments.write_set,
        keyspaces: keyspaces(arguments)?,
        data_plane: state.switch,
        nodes_coordinate: arguments.nodes_coordinate,
        kernel_get_mib: arguments.kernel_get_mib,
        link_mbit_per_second: arguments.link_mbit,
        hot: PlannedHot { values_max: arguments.hot_values, holders_max: arguments.hot_holders },
        ..Plan::new(
            &hosts,
            state.layout(),
            arguments.nodes(),
            arguments.replicas,
            &scope.directory(),
            data.as_deref(),
        )
    };
    let text = (roles.configure)(&plan).map_err(LabError::Configuration)?;
    fs::write(&state.config, text).map_err(LabError::io("write", &state.config))
}

/// The absolute path of the data directory, since the processes have another working directory.
fn data_directory(scope: &Scope, asked: Option<&Path>) -> Result<PathBuf> {
    let path = asked.map_or_else(|| scope.directory().join("data"), Path::to_path_buf);
    fs::create_dir_all(&path).map_err(LabError::io("create", &path))?;
    path.canonicalize().map_err(LabError::io("find", &path))
}

pub(crate) fn down(scope: &Scope) -> Result<()> {
    if !scope.state_file().exists() && !scope.lock_file().exists() {
        println!("no lab is running");
        return Ok(());
    }
    let lock = Lock::take(scope)?;
    remove(scope, lock)
}

/// Removes everything of a lab. Without a state file there is nothing to remove.
fn remove(scope: &Scope, lock: Lock) -> Result<()> {
    let state_file = scope.state_file();
    if state_file.exists() {
        network::remove(&lock, scope)?;
        allow_missing(fs::remove_dir_all(scope.directory()), &scope.directory())?;
        fs::remove_file(&state_file).map_err(LabError::io("remove", &state_file))?;
    }
    let new = state_file.with_extension("json.new");
    allow_missing(fs::remove_file(&new), &new)?;
    lock.remove()?;
    // Fails if other labs still use it.
    let _ = fs::remove_dir(Scope::run_directory());
    Ok(())
}

fn allow_missing(result: io::Result<()>, path: &Path) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(LabError::io("remove", path)),
    }
}

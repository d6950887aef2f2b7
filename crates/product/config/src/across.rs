//! Contradictions between the configuration files of one cluster.

use crate::binds::{Conflict, binds, conflicts};
use crate::check::{Problem, Server, problems, servers};
use crate::cluster::{ClusterConfig, RoleKind};
use crate::read::{decode, read_text};
use crate::schema;
use crate::sections::SwitchKind;
use nicekv_proto::NodeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file that has no problems by itself.
pub struct Checked {
    pub path: PathBuf,
    pub text: String,
    pub config: ClusterConfig,
}

impl Checked {
    /// Reads and checks one file.
    ///
    /// # Errors
    /// One line for each problem, which begins with the file's name.
    pub fn read(path: &Path) -> Result<Self, Vec<String>> {
        let text = read_text(path).map_err(|error| vec![error.to_string()])?;
        let named = |error: String| format!("{}{error}", path.display());
        let config = decode(&text).map_err(|errors| errors.into_iter().map(named).collect::<Vec<_>>())?;
        let problems = problems(&config);
        if problems.is_empty() {
            return Ok(Self { path: path.into(), text, config });
        }
        Err(problems.iter().map(|problem| named(problem.located(&text))).collect())
    }
}

/// A finding about a file. If nothing has to be done about it, it is a note.
pub struct Finding {
    pub file: usize,
    pub problem: Problem,
    pub is_note: bool,
}

/// Every contradiction between the files, and notes.
pub fn findings(files: &[Checked]) -> Vec<Finding> {
    // All files are compared with the metadata service's file, which has the most settings.
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|index| !files[*index].config.is_of_cluster());
    let mut across = Across { files, found: Vec::new() };
    across.settings(&order);
    across.servers(&order);
    if let Some(whole) = order.first().filter(|first| files[**first].config.is_of_cluster()) {
        across.members(*whole);
        across.switches(*whole);
    }
    across.binds();
    across.found
}

struct Across<'a> {
    files: &'a [Checked],
    found: Vec<Finding>,
}

/// The settings on which files have to agree: keys with their values, as far as the file's role
/// reads them.
fn settings(config: &ClusterConfig) -> Vec<(&'static str, String)> {
    let shared = [&schema::TOP, &schema::TIMING].into_iter();
    let shared = shared.flat_map(|section| section.keys).filter(|key| key.is_shared);
    let is_read = |key: &&schema::Key| config.role.is_none_or(|role| key.roles.contains(&role));
    let value = |key: &schema::Key| match key.name {
        "cluster_id" => config.cluster_id.clone(),
        "port" => config.port.to_string(),
        "replicas" => config.replicas.to_string(),
        "replication" => format!("{:?}", config.replication).to_lowercase(),
        "write_set" => config.write_set.map_or("none".into(), |write_set| write_set.to_string()),
        "partition_bits" => config.partition_bits.to_string(),
        "unicast_vring" => config.unicast_vring.to_string(),
        "multicast_vring" => config.multicast_vring.to_string(),
        "group_ring" => {
            let ring = config.group_ring().ok().flatten();
            ring.map_or("none".into(), |ring| format!("{}/{}", ring.base, ring.length))
        }
        "heartbeat_ms" => config.timing.heartbeat_ms.to_string(),
        name => unreachable!("{name} is not compared"),
    };
    let place = |key: &schema::Key| match key.name {
        "heartbeat_ms" => "timing.heartbeat_ms",
        name => name,
    };
    shared.filter(is_read).map(|key| (place(key), value(key))).collect()
}

impl Across<'_> {
    fn add(&mut self, file: usize, place: impl Into<String>, line: String) {
        self.found.push(Finding { file, problem: Problem { place: place.into(), line }, is_note: false });
    }

    fn name(&self, file: usize) -> String {
        self.files[file].path.display().to_string()
    }

    fn settings(&mut self, order: &[usize]) {
        let mut said: BTreeMap<&str, (String, usize)> = BTreeMap::new();
        for &file in order {
            for (field, value) in settings(&self.files[file].config) {
                let (first, by) = said.entry(field).or_insert_with(|| (value.clone(), file)).clone();
                if first != value {
                    let line = format!("{value} here, {first} in {}; make them equal", self.name(by));
                    self.add(file, field, line);
                }
            }
            self.keyspaces(file, order[0]);
        }
    }

    /// Checks that the further keyspaces agree; a switch needs only their rings.
    fn keyspaces(&mut self, file: usize, first: usize) {
        let [config, whole] = [file, first].map(|file| &self.files[file].config);
        if !whole.is_of_cluster() || config.role == Some(RoleKind::Node) {
            return;
        }
        let is_switch = config.role == Some(RoleKind::Switch);
        let described = |config: &ClusterConfig| -> Vec<String> {
            let specs = config.keyspaces().unwrap_or_default().into_iter().skip(1);
            let lines = specs.map(|spec| match is_switch {
                true => format!("{} on {} and {}", spec.name, spec.unicast, spec.multicast),
                false => format!("{spec:?}"),
            });
            lines.collect()
        };
        if described(config) != described(whole) {
            let line = format!("[[keyspaces]] differ from those in {}; make them equal", self.name(first));
            self.add(file, "keyspaces", line);
        }
    }

    /// Checks that no two servers share an id, address, port or MAC, and that all files describe a
    /// server alike.
    fn servers(&mut self, order: &[usize]) {
        let mut by_value: BTreeMap<(&str, String), (String, usize)> = BTreeMap::new();
        let mut by_name: BTreeMap<(&str, String), (String, usize)> = BTreeMap::new();
        for &file in order {
            for server in servers(&self.files[file].config) {
                for (field, value) in server.own() {
                    let Server { place, name, .. } = &server;
                    let place = format!("{place}.{field}");
                    let own = (field, name.clone());
                    let (known, by) = by_name.entry(own).or_insert((value.clone(), file)).clone();
                    if known != value {
                        let line = format!("{name} has {known} in {}; make them equal", self.name(by));
                        self.add(file, place, line);
                        continue;
                    }
                    let (owner, by) = by_value.entry((field, value)).or_insert((name.clone(), file)).clone();
                    if owner != *name && by != file {
                        let line =
                            format!("is already used by {owner} in {}; give {name} another", self.name(by));
                        self.add(file, place, line);
                    }
                }
            }
        }
    }

    /// Notes nodes that the cluster does not start with, because they have to be added.
    fn members(&mut self, whole: usize) {
        for (file, checked) in self.files.iter().enumerate() {
            for (index, node) in checked.config.nodes.iter().enumerate() {
                if self.files[whole].config.nodes.iter().any(|known| known.name == node.name) {
                    continue;
                }
                let (name, path) = (&node.name, checked.path.display());
                let line = format!(
                    "{name} is not in {}; once it runs, `nicekv node add {name} --config {path}` adds it",
                    self.name(whole)
                );
                let problem = Problem { place: format!("nodes.{index}"), line };
                self.found.push(Finding { file, problem, is_note: true });
            }
        }
    }

    /// Checks that the metadata service knows each switch, and that the switch knows the metadata
    /// service's address and has the ports of its hosts.
    fn switches(&mut self, whole: usize) {
        let cluster = self.files[whole].config.clone();
        let controls = cluster.metadata_controls();
        for file in 0..self.files.len() {
            let config = self.files[file].config.clone();
            if config.role.is_some_and(|role| role != RoleKind::Switch) {
                continue;
            }
            for (index, switch) in config.switches.iter().enumerate() {
                let place = |field: &str| format!("switches.{index}.{field}");
                let Some(id) = cluster.switches.iter().position(|known| known.name == switch.name) else {
                    let line = format!("{} is not in {}; add it there", switch.name, self.name(whole));
                    self.add(file, place("name"), line);
                    continue;
                };
                if let Some(unknown) = switch.control.iter().find(|control| !controls.contains(control)) {
                    let line = format!(
                        "{unknown} is not a control address of the metadata service in {}",
                        self.name(whole)
                    );
                    self.add(file, place("control"), line);
                }
                let numbers: Vec<u16> = switch.ports.iter().map(|port| port.number).collect();
                for (name, port) in connected(&cluster, id as u16) {
                    if matches!(switch.kind(), SwitchKind::Kernel { .. }) && !numbers.contains(&port) {
                        let line = format!(
                            "{name} is connected at port {port}, which is missing here; add it, or correct its switch_port"
                        );
                        self.add(file, place("ports"), line);
                    }
                }
            }
        }
    }

    /// Finds addresses that roles of different files both bind.
    fn binds(&mut self) {
        let all = self.files.iter().enumerate();
        let all: Vec<_> = all.flat_map(|(file, checked)| binds(file, &checked.config)).collect();
        for conflict in conflicts(&all) {
            let Conflict { first, second } = conflict;
            // Conflicts within one file are already known from its own check.
            if first.file != second.file {
                self.add(second.file, second.place.clone(), conflict.line(Some(&self.name(first.file))));
            }
        }
    }
}

/// Servers and other switches that are connected to a switch, each with its port.
fn connected(cluster: &ClusterConfig, switch: u16) -> Vec<(String, u16)> {
    let topology = cluster.topology_with_nodes().unwrap_or_default();
    let nodes = cluster.nodes.iter();
    let nodes =
        nodes.map(|node| (node.name.clone(), nicekv_metadata::host_id(NodeId(node.id)), node.switch_port));
    let services = cluster.metadata.all().into_iter().zip(0..).filter_map(|(service, index)| {
        Some((service.name, nicekv_metadata::service_host_id(index), service.switch_port?))
    });
    let is_here = |host| topology.home(host).is_none_or(|home| home == switch);
    let servers = nodes.chain(services).filter(|(_, host, _)| is_here(*host));
    let servers = servers.map(|(name, host, port)| (name, topology.port(switch, host).unwrap_or(port)));
    let ports = cluster.switches.get(usize::from(switch)).into_iter().flat_map(|switch| &switch.ports);
    let trunks = ports.filter_map(|port| Some((port.trunk.clone()?, port.number)));
    servers.chain(trunks).collect()
}

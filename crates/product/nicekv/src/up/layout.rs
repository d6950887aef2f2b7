//! The nodes and keyspaces of `up`: those of its data directory, plus those that options add.
//! Options that contradict the data directory are refused.

use super::{Engine, UpArguments};
use crate::role::say;
use nicekv_config::{ClusterConfig, KeyspaceSection, Replication, protocol};
use nicekv_metadata::{Change, Plan, StoredCluster};
use nicekv_operator::admin::ask_for;
use nicekv_operator::failure::Failure;
use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{
    CREATED_FIRST, KeyspaceDefaults, KeyspaceSpec, RingsBase, parse_keyspaces, partitions_for,
};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::metadata::peek;
use std::net::SocketAddrV4;
use std::path::Path;

/// Default number of nodes.
const NODES: u8 = 3;
/// Default number of replicas.
const REPLICAS: u8 = 3;
/// Maximum number of nodes in one process.
const NODES_MAX: usize = 64;
/// Highest node number: the number is the last byte of the node's address.
const NUMBER_MAX: u16 = 254;

pub(super) struct Layout {
    /// Numbers of the nodes that the cluster already has, or starts with.
    nodes: Vec<u8>,
    /// Numbers of the nodes to add to an existing cluster.
    pub(super) added: Vec<u8>,
    pub(super) default: KeyspaceSpec,
    /// All keyspaces except the default one.
    pub(super) keyspaces: Vec<KeyspaceSpec>,
}

pub(super) fn node_name(number: u8) -> String {
    format!("node-{number}")
}

impl Layout {
    /// The layout that follows from the options and the data directory.
    pub(super) fn of(arguments: &UpArguments) -> Result<Self, Failure> {
        let directory = arguments.data_dir.join("metadata");
        let stored = match arguments.engine {
            Engine::Durable => peek(&directory).map_err(Failure::environment)?,
            Engine::Memory => None,
        };
        match stored {
            Some(bytes) => {
                let stored = StoredCluster::read(&bytes).map_err(Failure::environment)?;
                Self::stored(arguments, &stored)
            }
            None => Self::new(arguments, (1..=arguments.nodes.unwrap_or(NODES)).collect()),
        }
    }

    fn new(arguments: &UpArguments, nodes: Vec<u8>) -> Result<Self, Failure> {
        let defaults = KeyspaceDefaults {
            id: KeyspaceId(1),
            replicas: arguments.replicas.unwrap_or(REPLICAS).into(),
            partitions: partitions_for(nodes.len()),
            rings: RingsBase::Loopback,
        };
        let replication = arguments.replication.unwrap_or_default();
        let default = KeyspaceSpec {
            protocol: protocol("default", replication, arguments.write_set)?,
            ..KeyspaceSpec::of(&KeyspaceDefaults { id: KeyspaceId::DEFAULT, ..defaults })
        };
        let keyspaces = parse_keyspaces(arguments.keyspaces.iter().map(String::as_str), &defaults);
        let keyspaces = keyspaces.map_err(Failure::environment)?;
        Ok(Self { nodes, added: Vec::new(), default, keyspaces })
    }

    fn stored(arguments: &UpArguments, stored: &StoredCluster) -> Result<Self, Failure> {
        let place = Place(&arguments.data_dir);
        let number = |node: u16| {
            u8::try_from(node).ok().filter(|_| node <= NUMBER_MAX).ok_or_else(|| {
                Failure::Environment(format!("no node number up to {NUMBER_MAX} is left in {place}"))
            })
        };
        let nodes = stored.nodes.iter().map(|node| number(node.id.0)).collect::<Result<Vec<_>, _>>()?;
        let asked: usize = arguments.nodes.map_or(stored.kept, usize::from);
        if asked < stored.kept {
            let hint = "`nicekv node remove NAME` removes one while the cluster runs";
            let there = format!("{} nodes; {hint}", stored.kept);
            return Err(place.contradicts(&format!("--nodes {asked}"), &there));
        }
        let more = asked - stored.kept;
        if more > 0 && nodes.len() + more > NODES_MAX {
            let line =
                format!("{place} has {} nodes, and one process may have at most {NODES_MAX}", nodes.len());
            return Err(Failure::Environment(line));
        }
        let added = (stored.next_node..).take(more).map(number).collect::<Result<Vec<_>, _>>()?;
        let is_default = |spec: &&KeyspaceSpec| spec.id == KeyspaceId::DEFAULT;
        let Some(default) = stored.keyspaces.iter().find(is_default) else {
            // The first start in this directory was interrupted.
            return Ok(Self { added, ..Self::new(arguments, nodes)? });
        };
        place.check_default(arguments, default)?;
        let configured = stored.keyspaces.iter().filter(|spec| spec.id < CREATED_FIRST);
        let mut keyspaces: Vec<_> = configured.filter(|spec| !is_default(spec)).cloned().collect();
        let mut defaults = KeyspaceDefaults {
            id: stored.next_keyspace,
            replicas: default.replicas,
            partitions: default.partitions,
            rings: RingsBase::Loopback,
        };
        for text in &arguments.keyspaces {
            let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
            if let Some(known) = stored.keyspaces.iter().find(|spec| spec.name == name) {
                place.check_keyspace(text, known, &defaults)?;
                continue;
            }
            let spec = KeyspaceSpec::parse(text, &defaults).map_err(Failure::environment)?;
            spec.check_configured().map_err(Failure::environment)?;
            defaults.id = KeyspaceId(defaults.id.max(spec.id).0 + 1);
            keyspaces.push(spec);
        }
        Ok(Self { nodes, added, default: default.clone(), keyspaces })
    }

    /// Numbers of all nodes, existing and added.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u8> {
        self.nodes.iter().chain(&self.added).copied()
    }

    /// Adds the new nodes to the running cluster. Replicas move to them while it serves clients.
    pub(super) fn add_nodes(&self, config: &ClusterConfig, endpoint: SocketAddrV4) -> Result<(), Failure> {
        for number in &self.added {
            let is_this = |node: &&nicekv_config::NodeSection| node.id == u16::from(*number);
            let Some(section) = config.nodes.iter().find(is_this) else { continue };
            let change = Change::Add {
                name: section.name.clone(),
                address: SocketAddrV4::new(section.address, config.port),
                mac: section.mac.0,
                switch_port: section.switch_port,
                home: None,
            };
            let plan: Plan = ask_for(&[endpoint], &AdminRequest::Change(change))?;
            let moving: usize = plan.moves.iter().map(|(_, _, count)| count).sum();
            let name = &section.name;
            say(format_args!(
                "added {name}: {moving} replicas will move; `nicekv node list` shows the progress"
            ))?;
        }
        Ok(())
    }
}

/// The data directory, as error messages name it.
#[derive(Clone, Copy)]
struct Place<'a>(&'a Path);

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the cluster in {}", self.0.display())
    }
}

impl Place<'_> {
    fn contradicts(self, option: &str, stored: &str) -> Failure {
        Failure::Environment(format!(
            "{option} contradicts {self}, which has {stored}: leave the option out, or choose another --data-dir"
        ))
    }

    fn check_default(self, arguments: &UpArguments, default: &KeyspaceSpec) -> Result<(), Failure> {
        let KeyspaceSection { replication, write_set, .. } = KeyspaceSection::of(default);
        if let Some(asked) = arguments.replicas.filter(|asked| usize::from(*asked) != default.replicas) {
            let stored = format!("{} replicas", default.replicas);
            return Err(self.contradicts(&format!("--replicas {asked}"), &stored));
        }
        if let Some(asked) = arguments.replication.filter(|asked| *asked != replication) {
            let stored = format!("replication {}", named(replication));
            return Err(self.contradicts(&format!("--replication {}", named(asked)), &stored));
        }
        match arguments.write_set.filter(|asked| Some(*asked) != write_set) {
            Some(asked) => {
                let stored = write_set.map_or("no write set".into(), |k| format!("write set {k}"));
                Err(self.contradicts(&format!("--write-set {asked}"), &stored))
            }
            None => Ok(()),
        }
    }

    /// Checks that an option agrees with an existing keyspace.
    fn check_keyspace(
        self,
        text: &str,
        known: &KeyspaceSpec,
        defaults: &KeyspaceDefaults,
    ) -> Result<(), Failure> {
        let asked = KeyspaceSpec::parse(text, &KeyspaceDefaults { id: known.id, ..*defaults });
        let asked = asked.map_err(Failure::environment)?;
        // A keyspace that was created by a command may have any free rings: the options do not give
        // them.
        let asked = match known.id >= CREATED_FIRST {
            true => KeyspaceSpec { unicast: known.unicast, multicast: known.multicast, ..asked },
            false => asked,
        };
        match asked == *known {
            true => Ok(()),
            false => Err(self.contradicts(&format!("--keyspace {text}"), &format!("keyspace {known}"))),
        }
    }
}

fn named(replication: Replication) -> String {
    clap::ValueEnum::to_possible_value(&replication).map_or_else(String::new, |it| it.get_name().into())
}

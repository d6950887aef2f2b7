//! Which switch and port each server is connected to, and which switches are connected by trunks.

use crate::cluster::ClusterConfig;
use crate::error::ConfigError;
use crate::sections::SwitchSection;
use nicekv_proto::NodeId;
use nicekv_switch::{HostId, Topology};
use nicekv_switch_xdp::Hook;

impl ClusterConfig {
    /// The connections in `hosts`, which differ from the servers' own `switch_port`. Whether the
    /// switches form a tree is checked later, with the whole file.
    pub(super) fn topology(&self) -> Result<Topology, ConfigError> {
        let mut topology = Topology::default();
        // Nodes have no home switch here: the metadata service knows it.
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|node| (nicekv_metadata::host_id(NodeId(node.id)), &node.name, None));
        let services = self.metadata.all();
        let services = services.iter().zip(0..);
        let services = services.map(|(service, index)| {
            (nicekv_metadata::service_host_id(index), &service.name, service.switch.as_deref())
        });
        let servers: Vec<_> = nodes.chain(services).collect();
        for (host, name, switch) in &servers {
            if let Some(home) = self.home(name, *switch)? {
                topology.set_home(*host, home);
            }
        }
        let known = |name: &str| servers.iter().find(|(_, known, _)| *known == name).map(|(host, ..)| *host);
        for (switch, index) in self.switches.iter().zip(0..) {
            attach_hosts(&mut topology, (switch, index), known)?;
            self.connect_trunks(&mut topology, (switch, index))?;
        }
        Ok(topology)
    }

    /// The same, including the home switches of nodes.
    pub(super) fn topology_with_nodes(&self) -> Result<Topology, ConfigError> {
        let mut topology = self.topology()?;
        for node in &self.nodes {
            if let Some(home) = self.home(&node.name, node.switch.as_deref())? {
                topology.set_home(nicekv_metadata::host_id(NodeId(node.id)), home);
            }
        }
        Ok(topology)
    }

    /// The number of the switch to which a server is connected.
    pub(super) fn home(&self, name: &str, switch: Option<&str>) -> Result<Option<u16>, ConfigError> {
        let number = |switch| self.switch_number(switch).map_err(|error| wrong(name, "switch", &error));
        switch.map(number).transpose()
    }

    fn connect_trunks(
        &self,
        topology: &mut Topology,
        (switch, index): (&SwitchSection, u16),
    ) -> Result<(), ConfigError> {
        for port in &switch.ports {
            let Some(neighbour) = &port.trunk else { continue };
            let refused = |error: &str| Err(wrong(&switch.name, "trunk", error));
            if switch.router_mac.is_none() || port.hook == Hook::None {
                return refused(
                    "trunks connect kernel switches at ports with a hook: neither the user-space switch nor an edge has any",
                );
            }
            let neighbour =
                self.switch_number(neighbour).map_err(|error| wrong(&switch.name, "trunk", &error))?;
            if !topology.connect(index, neighbour, port.number) {
                return refused("two trunks lead to the same switch");
            }
        }
        Ok(())
    }

    /// The number of a switch: its position in the file.
    fn switch_number(&self, name: &str) -> Result<u16, String> {
        let place = self.switches.iter().position(|switch| switch.name == name);
        place.map(|place| place as u16).ok_or_else(|| format!("there is no switch {name:?}"))
    }
}

fn attach_hosts(
    topology: &mut Topology,
    (switch, index): (&SwitchSection, u16),
    known: impl Fn(&str) -> Option<HostId>,
) -> Result<(), ConfigError> {
    for host in &switch.hosts {
        let id = known(&host.name).ok_or_else(|| {
            let error = format!("{} is neither a node nor an instance of the metadata service", host.name);
            wrong(&switch.name, "hosts", &error)
        })?;
        topology.attach(index, id, host.port);
    }
    Ok(())
}

fn wrong(name: &str, field: &str, error: &str) -> ConfigError {
    ConfigError::new(format!("{name}: {field}: {error}"))
}

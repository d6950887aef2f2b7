//! Where servers hang at which switch, and how switches hang together.

use super::{ClusterConfig, SwitchSection};
use crate::error::ConfigError;
use nicekv_proto::NodeId;
use nicekv_switch::{HostId, Topology};
use nicekv_switch_xdp::Hook;

impl ClusterConfig {
    /// What differs from where servers say themselves that they hang. Whether the switches form a tree is checked with the whole.
    pub(super) fn topology(&self) -> Result<Topology, ConfigError> {
        let mut topology = Topology::default();
        // The cluster knows the homes of its nodes itself.
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

    /// With the homes of nodes, too, as their entries have them.
    pub(super) fn topology_with_nodes(&self) -> Result<Topology, ConfigError> {
        let mut topology = self.topology()?;
        for node in &self.nodes {
            if let Some(home) = self.home(&node.name, node.switch.as_deref())? {
                topology.set_home(nicekv_metadata::host_id(NodeId(node.id)), home);
            }
        }
        Ok(topology)
    }

    /// The number of the switch that a server says it hangs at.
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
                    "trunks are between switches in the kernel, at ports that take frames: neither the user-space switch nor an edge has any",
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

    /// Switches are known by their places in the file.
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
            let error = format!("{} is no node, and no instance of the metadata service", host.name);
            wrong(&switch.name, "hosts", &error)
        })?;
        topology.attach(index, id, host.port);
    }
    Ok(())
}

fn wrong(name: &str, field: &str, error: &str) -> ConfigError {
    ConfigError::new(format!("{name}: {field}: {error}"))
}

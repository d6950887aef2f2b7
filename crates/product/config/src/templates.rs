//! Files to begin with, one for each role, with every field that the role reads. `#name = …` is a default, `# name = …` an example of what is
//! absent unless it is said; the tests hold both against the structs.

use clap::ValueEnum;

/// What `nicekv config print` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// The metadata service, or its instances
    Metadata,
    /// A storage node
    Node,
    /// A switch in the kernel, at XDP or tc
    Switch,
    /// The edge of a host, where the network cannot be programmed
    Edge,
    /// The switch in user space, on one machine
    UserSwitch,
    /// A RESP gateway
    Gateway,
    /// All roles in one file
    Cluster,
}

#[cfg(test)]
mod tests;

impl Template {
    pub fn text(self) -> &'static str {
        match self {
            Self::Metadata => include_str!("templates/metadata.toml"),
            Self::Node => include_str!("templates/node.toml"),
            Self::Switch => include_str!("templates/switch.toml"),
            Self::Edge => include_str!("templates/edge.toml"),
            Self::UserSwitch => include_str!("templates/user-switch.toml"),
            Self::Gateway => include_str!("templates/gateway.toml"),
            Self::Cluster => super::EXAMPLE,
        }
    }
}

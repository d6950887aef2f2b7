//! The data plane of a lab's switches.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

use nicekv_switch_xdp::Hook;
use serde::{Deserialize, Serialize};

/// Where the controller of a switch waits for it, inside the switch's namespace.
pub const CONTROLLER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6653);

/// The data plane of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DataPlane {
    /// The eBPF programs, at this hook of each port.
    Kernel(Hook),
    /// Open vSwitch, controlled by OpenFlow.
    OpenFlow,
}

impl DataPlane {
    /// The hook on a lab's links, which are veth pairs; `None` without eBPF programs.
    pub(crate) fn hook(self) -> Option<Hook> {
        match self {
            Self::Kernel(hook) => Some(hook.on_veth()),
            Self::OpenFlow => None,
        }
    }

    /// The same with the hook that it has on a lab's links.
    pub(crate) fn on_veth(self) -> Self {
        self.hook().map_or(Self::OpenFlow, Self::Kernel)
    }
}

impl Default for DataPlane {
    fn default() -> Self {
        Self::Kernel(Hook::default())
    }
}

impl fmt::Display for DataPlane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(hook) => hook.fmt(formatter),
            Self::OpenFlow => formatter.pad("openflow"),
        }
    }
}

impl FromStr for DataPlane {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "openflow" {
            return Ok(Self::OpenFlow);
        }
        name.parse().map(Self::Kernel).map_err(|_| format!("{name:?} is not xdp, tc, auto or openflow"))
    }
}

impl From<DataPlane> for String {
    fn from(data_plane: DataPlane) -> Self {
        data_plane.to_string()
    }
}

impl TryFrom<String> for DataPlane {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

//! The hook at which the programs are attached to a port: XDP or tc.
//!
//! | | XDP | tc |
//! | --- | --- | --- |
//! | input | the driver's receive buffer | the kernel's packet buffer |
//! | fast | on physical NICs: no packet buffer is allocated | on veth: the sender's packet buffer is forwarded |
//! | turns off at a veth peer | segmentation and checksum offload, an MTU above 3506 | UDP segmentation offload only |
//! | needs | a driver with native XDP; for scans, the requirements of tc | Linux 6.6 |
//!
//! XDP cannot send a frame and continue processing it. So a scan that may have to be split is
//! passed up to the tc program of the same port, which is always attached and gets no other frames
//! (`bpf/scan.h`).
//!
//! Both hooks have the same tables, maps, stages and counters, and one switch can have ports of
//! both kinds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::interface::Interface;

/// The hook requested for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Native XDP in the driver.
    Xdp,
    /// tc ingress.
    Tc,
    /// Chosen by the interface's driver: tc on veth, XDP elsewhere. If that hook cannot be
    /// attached, the other one.
    #[default]
    Auto,
    /// No program is attached: the port sends frames, but receives none. Several such ports may
    /// share an interface. They must come after all other ports.
    None,
}

impl Hook {
    /// The hooks that users can choose by name for all ports of a switch.
    pub const ALL: [Self; 3] = [Self::Xdp, Self::Tc, Self::Auto];

    /// The hook's name in options and configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::Auto => "auto",
            Self::None => "none",
        }
    }

    /// The hook to use if both ends of a port's link are known to be veth.
    pub fn on_veth(self) -> Self {
        match self {
            Self::Auto => Self::Tc,
            chosen => chosen,
        }
    }

    /// The hooks to try at an interface, in order.
    pub(crate) fn candidates(self, interface: &Interface) -> &'static [Self] {
        match self {
            Self::Xdp => &[Self::Xdp],
            Self::Tc => &[Self::Tc],
            Self::None => &[],
            Self::Auto if interface.is_veth => &[Self::Tc, Self::Xdp],
            Self::Auto => &[Self::Xdp, Self::Tc],
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Hook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|hook| hook.name() == text);
        found.ok_or_else(|| format!("{text:?} is not xdp, tc or auto"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_and_drivers_are_read() {
        for hook in Hook::ALL {
            assert_eq!(hook.to_string().parse(), Ok(hook));
        }
        assert!("XDP".parse::<Hook>().is_err() && "".parse::<Hook>().is_err());
        let interface = |is_veth| Interface { name: "p0".into(), is_veth, has_peer: false };
        assert_eq!(Hook::Auto.candidates(&interface(true)), [Hook::Tc, Hook::Xdp]);
        assert_eq!(Hook::Auto.candidates(&interface(false)), [Hook::Xdp, Hook::Tc]);
        assert_eq!(Hook::Xdp.candidates(&interface(true)), [Hook::Xdp]);
        assert_eq!(Hook::Tc.candidates(&interface(false)), [Hook::Tc]);
    }
}

//! Where at a port the programs are attached: XDP or tc.
//!
//! | | XDP | tc |
//! | --- | --- | --- |
//! | what it sees | what the driver has received | the kernel's packet buffer |
//! | fast | on physical NICs: no buffer is made | on veth: the buffer that the sender has made is handed on |
//! | takes from the far end of a veth | segmentation and checksum offload, an MTU above 3506 | nothing, but UDP segmentation must be off there |
//! | needs | a driver with native XDP, and for scans what tc needs | Linux 6.6 |
//!
//! XDP cannot send a frame and go on with it. So scans that may have to be split go up from there to the program at tc of the same port, which is always attached, and
//! sees nothing else (`bpf/scan.h`).
//!
//! Tables, maps, stages and counters are the same, and ports of both kinds work in one switch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::interface::Interface;

/// What is asked for at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Native XDP.
    Xdp,
    /// tc ingress.
    Tc,
    /// By the driver of the interface: tc on veth, XDP elsewhere; the other one if that cannot be attached.
    #[default]
    Auto,
    /// Nowhere: frames leave by such a port, and none is taken. Several may share an interface, and other ports come before them.
    None,
}

impl Hook {
    /// What may be chosen for all ports of a switch, by name.
    pub const ALL: [Self; 3] = [Self::Xdp, Self::Tc, Self::Auto];

    /// As options and configuration files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::Auto => "auto",
            Self::None => "none",
        }
    }

    /// The choice where both ends of a port's cable are known to be veth.
    pub fn on_veth(self) -> Self {
        match self {
            Self::Auto => Self::Tc,
            chosen => chosen,
        }
    }

    /// What is tried at an interface, one after the other.
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
    fn names_are_read_back_and_the_driver_decides_what_is_open() {
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

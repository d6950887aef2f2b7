//! Several switches, and which host hangs at which.
//!
//! ```text
//!   --switches 2:  a chain                                  --switches 3:  a root and leaves
//!
//!   metadata ═╗                    ╔═ node-1                              ╔═ switch-1 ═╦═ node-0, node-2 …
//!   node-0 ═══╬═ switch ═══ switch-1 ═ node-3               metadata ═ switch          ╚═ client-0 …
//!   client-0 ═╝                    ╚═ client-1                            ╚═ switch-2 ═╦═ node-1, node-3 …
//!                                                                                      ╚═ client-1 …
//! ```
//!
//! Nodes are dealt out in turn, and so are clients: members of a partition hang at different switches.

use crate::topology::Host;

/// Most switches: their management cables have addresses of one byte.
pub(crate) const SWITCHES_MAX: usize = 9;

/// How many switches there are; the rest follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    switches: u8,
}

impl Tree {
    /// Of that many switches.
    pub(crate) fn new(switches: usize) -> Self {
        assert!((1..=SWITCHES_MAX).contains(&switches), "checked with the options");
        Self { switches: switches as u8 }
    }

    /// As the hosts of a lab say.
    pub(crate) fn of(hosts: impl IntoIterator<Item = Host>) -> Self {
        let further = hosts.into_iter().filter(|host| matches!(host, Host::FurtherSwitch(_)));
        Self::new(1 + further.count())
    }

    /// The root first.
    pub(crate) fn switches(self) -> impl Iterator<Item = Host> {
        (0..self.switches).map(switch)
    }

    /// The switch that a host hangs at; of a further switch, the one at whose port its trunk is.
    pub(crate) fn home(self, host: Host) -> Host {
        let leaves = match self.switches {
            1 | 2 => 0..self.switches,
            more => 1..more,
        };
        match host.machine() {
            Host::Node(index) | Host::Client(index) => switch(leaves.start + index % leaves.len() as u8),
            _ => Host::Switch,
        }
    }
}

fn switch(index: u8) -> Host {
    if index == 0 { Host::Switch } else { Host::FurtherSwitch(index) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_dealt_out_over_the_leaves() {
        let homes = |switches| {
            let hosts = [0, 1, 2].map(Host::Node).into_iter().chain([Host::Client(1), Host::Metadata]);
            hosts.map(|host| Tree::new(switches).home(host).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(homes(1), "switch switch switch switch switch");
        assert_eq!(homes(2), "switch switch-1 switch switch-1 switch");
        assert_eq!(homes(3), "switch-1 switch-2 switch-1 switch-2 switch");
        assert_eq!(Tree::of(Tree::new(3).switches()), Tree::new(3));
        assert_eq!(Tree::new(3).home(Host::FurtherSwitch(2)), Host::Switch);
    }
}

//! Link state of trunks: whether the kernel detects a carrier.

use crate::sys;
use nicekv_proto::{Duration, Now};
use socket2::{Domain, Socket, Type};
use std::os::fd::AsFd as _;

/// Interval of checks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Checks the links of a switch's trunk ports.
#[derive(Debug, Default)]
pub struct TrunkLinks {
    /// Port numbers and interface names, ascending.
    ports: Vec<(u16, String)>,
    /// Socket for interface queries. It is not bound, so it receives nothing.
    socket: Option<Socket>,
    down: Vec<u16>,
    look_at_ns: u64,
}

impl TrunkLinks {
    /// Checks these ports, given by number and by interface name in the caller's network namespace.
    pub fn of(ports: impl IntoIterator<Item = (u16, String)>) -> std::io::Result<Self> {
        let mut ports: Vec<_> = ports.into_iter().collect();
        ports.sort();
        let socket = match ports.is_empty() {
            true => None,
            false => Some(Socket::new(Domain::IPV4, Type::DGRAM, None)?),
        };
        Ok(Self { ports, socket, down: Vec::new(), look_at_ns: 0 })
    }

    /// Ports with a dead link; `None` if no ports are checked.
    pub(crate) fn down(&self) -> Option<&[u16]> {
        (!self.ports.is_empty()).then_some(&self.down)
    }

    /// Checks all ports if the interval has passed.
    pub(crate) fn look(&mut self, now: Now) {
        let Some(socket) = self.socket.as_ref().filter(|_| now.boot_ns >= self.look_at_ns) else { return };
        self.look_at_ns = now.after(INTERVAL);
        // An interface that does not exist counts as dead.
        let is_down = |device: &str| !sys::has_carrier(socket.as_fd(), device).unwrap_or(false);
        let down = self.ports.iter().filter(|(_, device)| is_down(device));
        self.down = down.map(|(number, _)| *number).collect();
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.socket.as_ref().map(|_| self.look_at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;

    #[test]
    fn link_state_of_present_and_missing_interfaces() {
        let mut trunk_links = TrunkLinks::of([(4, "lo".to_owned()), (7, "nobody".to_owned())]).unwrap();
        assert_eq!(trunk_links.down(), Some(&[][..]));
        trunk_links.look(now());
        assert_eq!(trunk_links.down(), Some(&[7][..]));
        let again_ns = trunk_links.next_deadline().unwrap();
        trunk_links.look(now());
        assert_eq!(trunk_links.next_deadline(), Some(again_ns), "checked before the interval has passed");
        assert_eq!(TrunkLinks::of([]).unwrap().next_deadline(), None);
    }
}

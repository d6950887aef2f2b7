//! The open sockets of a cluster, grouped by who can reach them.

use nicekv_metadata::OpenSocket;

/// Reach of a socket, the widest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// The socket is bound to the unspecified address.
    AllNetworks,
    OneNetwork,
    ThisHost,
}

impl Reach {
    fn of(socket: &OpenSocket) -> Self {
        let ip = socket.address.ip();
        match &socket.device {
            Some(device) if device == "lo" => Self::ThisHost,
            Some(_) => Self::OneNetwork,
            None if ip.is_loopback() => Self::ThisHost,
            None if ip.is_unspecified() => Self::AllNetworks,
            None => Self::OneNetwork,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::AllNetworks => "every network of the host",
            Self::OneNetwork => "hosts that can route to the address",
            Self::ThisHost => "this host only",
        }
    }
}

/// Attributes that the sockets of one line share: reach, protection, login, protocol and purpose.
type Use<'a> = (Reach, bool, &'a str, &'a str, &'a str);

/// One line for each use, with all addresses, the widest reach first.
pub(crate) fn describe_listening(listening: &[OpenSocket]) -> Vec<String> {
    let mut groups: Vec<(Use<'_>, Vec<&OpenSocket>)> = Vec::new();
    for socket in listening {
        let OpenSocket { protocol, purpose, login, is_protected, .. } = socket;
        let key = (Reach::of(socket), *is_protected, &**login, &**protocol, &**purpose);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sockets)) => sockets.push(socket),
            None => groups.push((key, vec![socket])),
        }
    }
    groups.sort_by_key(|(key, _)| *key);
    let line = |((reach, _, login, protocol, purpose), sockets): &(_, Vec<&OpenSocket>)| {
        let reach: &Reach = reach;
        let address = |socket: &&OpenSocket| {
            let device = socket.device.as_ref().map(|device| format!("%{device}")).unwrap_or_default();
            format!("{} {}{device}", socket.role, socket.address)
        };
        let addresses = sockets.iter().map(address).collect::<Vec<_>>().join(", ");
        format!("open to {}, {login}: {purpose} ({protocol}): {addresses}", reach.words())
    };
    groups.iter().map(line).collect()
}

/// A warning for each socket that takes requests or administration from every network of its host.
pub(crate) fn exposed(listening: &[OpenSocket]) -> Vec<String> {
    let is_exposed = |socket: &&OpenSocket| {
        let takes_requests = socket.purpose.contains("administration")
            || socket.purpose.contains("puts")
            || socket.purpose.contains("copies")
            || socket.purpose.contains("chunks");
        Reach::of(socket) == Reach::AllNetworks && takes_requests && !socket.is_protected
    };
    let line = |socket: &OpenSocket| {
        format!(
            "{} accepts {} at {} {} from every network of its host, without a login: bind it to the address of the cluster's network",
            socket.role, socket.purpose, socket.protocol, socket.address
        )
    };
    listening.iter().filter(is_exposed).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(role: &str, protocol: &str, address: &str, purpose: &str) -> OpenSocket {
        OpenSocket {
            role: role.into(),
            protocol: protocol.into(),
            address: address.parse().unwrap(),
            device: None,
            purpose: purpose.into(),
            login: "no login".into(),
            is_protected: false,
        }
    }

    #[test]
    fn sockets_are_grouped_by_use_with_the_widest_reach_first() {
        let device = Some("lo".into());
        let sockets = [
            socket("node-0", "udp", "10.20.1.1:7400", "gets, puts and replication"),
            socket("node-1", "udp", "10.20.1.2:7400", "gets, puts and replication"),
            OpenSocket { device, ..socket("switch", "udp", "0.0.0.0:7400", "gets and puts to the vrings") },
            socket("metadata", "tcp", "0.0.0.0:7400", "administration, switches and clients"),
        ];
        assert_eq!(
            describe_listening(&sockets),
            [
                "open to every network of the host, no login: administration, switches and clients (tcp): metadata 0.0.0.0:7400",
                "open to hosts that can route to the address, no login: gets, puts and replication (udp): node-0 10.20.1.1:7400, node-1 10.20.1.2:7400",
                "open to this host only, no login: gets and puts to the vrings (udp): switch 0.0.0.0:7400%lo",
            ]
        );
        let expected = "metadata accepts administration, switches and clients at tcp 0.0.0.0:7400 from every network of its host, \
            without a login: bind it to the address of the cluster's network";
        assert_eq!(exposed(&sockets), [expected]);
    }
}

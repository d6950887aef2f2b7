//! Reports the sockets on which this process receives to the metadata service, for `nicekv status`.
//!
//! The list comes from the kernel, so no socket can be missing; the roles only add the purpose of
//! each.

use crate::gateway::Settings;
use crate::role::Role;
use nicekv_config::{ClusterConfig, InstanceSection, NodeSection, SwitchKind, SwitchSection};
use nicekv_gateway::Listeners;
use nicekv_metadata::{ListeningReport, OpenSocket};
use nicekv_proto::placement::GroupRing;
use nicekv_runtime::admin;
use nicekv_runtime::control_plane::AdminRequest;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::time::{Duration, Instant};

/// Interval between checks of the sockets.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Unchanged sockets are reported again after this time: the metadata service forgets them after 30 s, and its leader may change.
const REPORT_INTERVAL: Duration = Duration::from_secs(8);
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
const TCP: &str = "tcp";
const UDP: &str = "udp";
/// The kernel's code for a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";
const NO_LOGIN: &str = "no login";

/// The sockets whose purpose the roles of this process have declared.
#[derive(Debug, Default)]
pub(crate) struct KnownSockets {
    known: Vec<OpenSocket>,
    /// The role to which all other sockets are attributed; they send requests.
    client: String,
}

impl KnownSockets {
    /// No declared sockets yet; `client` is the role that sends requests.
    pub(crate) fn of(client: &str) -> Self {
        Self { known: Vec::new(), client: client.to_owned() }
    }

    /// The sockets of a process that has all roles of a cluster.
    pub(crate) fn of_cluster(
        config: &ClusterConfig,
        gateway: &str,
        listeners: &Listeners,
        settings: &Settings,
        metrics: Option<SocketAddr>,
    ) -> Self {
        let uses = Self::of(gateway).gateway(gateway, listeners, settings).metrics("up", metrics);
        let uses = config.metadata.all().iter().fold(uses, |uses, instance| uses.instance(config, instance));
        let uses = config.nodes.iter().fold(uses, |uses, node| uses.node(config, node));
        config.switches.iter().fold(uses, |uses, switch| uses.switch(config, switch))
    }

    fn add(&mut self, role: &str, protocol: &str, address: SocketAddr, purpose: &str) -> &mut OpenSocket {
        self.known.push(OpenSocket {
            role: role.to_owned(),
            protocol: protocol.to_owned(),
            address,
            device: None,
            purpose: purpose.to_owned(),
            login: NO_LOGIN.to_owned(),
            is_protected: false,
        });
        self.known.last_mut().expect("it was added")
    }

    pub(crate) fn instance(mut self, config: &ClusterConfig, instance: &InstanceSection) -> Self {
        let InstanceSection { name, address, control, metrics, .. } = instance;
        let address = SocketAddrV4::new(*address, config.port).into();
        self.add(name, UDP, address, "heartbeats of nodes");
        for control in control {
            self.add(name, TCP, (*control).into(), "administration, switches and clients");
        }
        self.metrics(name, *metrics)
    }

    pub(crate) fn node(mut self, config: &ClusterConfig, section: &NodeSection) -> Self {
        let NodeSection { name, address, metrics, .. } = section;
        let at = |port| SocketAddr::from((*address, port));
        self.add(name, UDP, at(config.port), "gets, puts and replication");
        self.add(name, TCP, at(config.port), "copies between nodes, backups");
        self.add(name, UDP, at(GroupRing::usual_target_port(config.port)), "chunks of objects");
        self.metrics(name, *metrics)
    }

    pub(crate) fn switch(mut self, config: &ClusterConfig, section: &SwitchSection) -> Self {
        let SwitchSection { name, metrics, .. } = section;
        match section.kind() {
            SwitchKind::UserSpace => {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.port));
                let socket = self.add(name, UDP, any, "gets and puts to the vrings");
                socket.device = Some(section.device().to_owned());
            }
            SwitchKind::OpenFlow { controller, .. } => {
                self.add(name, TCP, controller.into(), "the OpenFlow switch");
            }
            // It receives requests without sockets.
            SwitchKind::Kernel { .. } => {}
        }
        self.metrics(name, *metrics)
    }

    pub(crate) fn gateway(mut self, name: &str, listeners: &Listeners, settings: &Settings) -> Self {
        let address = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        for (address, tls) in [(address(&listeners.plain), ""), (address(&listeners.tls), " with TLS")] {
            let Some(address) = address else { continue };
            let (login, is_protected) = settings.access(address);
            let socket = self.add(name, TCP, address, &format!("Redis clients{tls}"));
            (socket.login, socket.is_protected) = (login.to_owned(), is_protected);
        }
        self
    }

    pub(crate) fn metrics(mut self, name: &str, address: Option<SocketAddr>) -> Self {
        if let Some(address) = address {
            self.add(name, TCP, address, "metrics");
        }
        self
    }

    /// A socket of the kernel's list, with its purpose.
    fn describe(&self, protocol: &str, address: SocketAddr) -> OpenSocket {
        let found = self.known.iter().find(|known| (&*known.protocol, known.address) == (protocol, address));
        let purpose = if protocol == UDP { "replies to its own requests" } else { "unknown" };
        found.cloned().unwrap_or_else(|| OpenSocket {
            role: self.client.clone(),
            protocol: protocol.to_owned(),
            address,
            device: None,
            purpose: purpose.to_owned(),
            login: NO_LOGIN.to_owned(),
            is_protected: false,
        })
    }

    /// All sockets of this process from the kernel's list, or the declared ones if that cannot be
    /// read.
    fn sockets(&self) -> Vec<OpenSocket> {
        match own_sockets() {
            Ok(sockets) => {
                sockets.into_iter().map(|(protocol, address)| self.describe(protocol, address)).collect()
            }
            Err(_) => self.known.clone(),
        }
    }
}

/// The role that reports the sockets to these metadata instances.
pub(crate) fn reporter(known: KnownSockets, instances: Vec<SocketAddrV4>) -> Role {
    let (mut reported, mut due) = (Vec::new(), Instant::now());
    Box::new(move |stop| {
        let look = || {
            let sockets = known.sockets();
            if instances.is_empty() || (sockets == reported && Instant::now() < due) {
                return;
            }
            let report = ListeningReport { process: known.client.clone(), sockets: sockets.clone() };
            // If no leader answers, the report is repeated later.
            if admin::ask(&instances, &AdminRequest::Listening(report), REPORT_TIMEOUT).is_ok() {
                (reported, due) = (sockets, Instant::now() + REPORT_INTERVAL);
            }
        };
        stop.every(LOOK_INTERVAL, look).map_err(|error| error.to_string())
    })
}

/// Protocol and address of each listening TCP socket and each bound UDP socket of this process.
fn own_sockets() -> std::io::Result<Vec<(&'static str, SocketAddr)>> {
    let mut found = Vec::new();
    for (file, protocol) in [("tcp", TCP), ("tcp6", TCP), ("udp", UDP), ("udp6", UDP)] {
        // Two of the four files exist only if the kernel has IPv6.
        let Ok(text) = fs::read_to_string(format!("/proc/self/net/{file}")) else { continue };
        let lines = text.lines().skip(1).filter_map(parse);
        found.extend(
            lines
                .filter(|line| protocol == UDP || line.state == LISTENS)
                .map(|line| (protocol, line.address, line.inode)),
        );
    }
    let mut own = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        // The descriptor may have been closed in the meantime.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let inode = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        own.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    let mut sockets: Vec<_> = found
        .into_iter()
        .filter(|(_, _, inode)| own.contains(inode))
        .map(|(protocol, address, _)| (protocol, address))
        .collect();
    sockets.sort_unstable();
    Ok(sockets)
}

/// A parsed line of `/proc/net/tcp` and similar files.
struct Line<'a> {
    address: SocketAddr,
    state: &'a str,
    inode: u64,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ip, port) = words.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Addresses are 32-bit words in native byte order.
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let bytes: Vec<u8> = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
    };
    Some(Line { address: (ip, port).into(), state: words.get(3)?, inode: words.get(9)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_listening_sockets_are_listed() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
        let connected = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let sockets = own_sockets().unwrap();
        assert!(sockets.contains(&(TCP, tcp.local_addr().unwrap())), "{sockets:?}");
        assert!(sockets.contains(&(UDP, udp.local_addr().unwrap())), "{sockets:?}");
        assert!(
            !sockets.contains(&(TCP, connected.local_addr().unwrap())),
            "connected sockets do not listen: {sockets:?}"
        );
    }

    #[test]
    fn addresses_of_proc_files_are_parsed() {
        let four = "   1: 01FF147F:C05E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 28451 1 0";
        let line = parse(four).unwrap();
        let is_little = cfg!(target_endian = "little");
        assert!(!is_little || line.address == "127.20.255.1:49246".parse().unwrap(), "{}", line.address);
        assert_eq!((line.state, line.inode), (LISTENS, 28451));
        let six = "   0: 00000000000000000000000001000000:18EB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0";
        assert!(!is_little || parse(six).unwrap().address == "[::1]:6379".parse().unwrap());
        assert!(parse("sl local_address").is_none());
    }
}

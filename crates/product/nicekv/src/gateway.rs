//! The gateway for Redis clients, as a role of this process.

use crate::logs::events::Event;
use crate::logs::watch::emit;
use crate::role::{Prepared, Role};
use log::Level;
use nicekv_client::{Config, Keyspace};
use nicekv_config::GatewaySection;
use nicekv_config::ThreadCount;
use nicekv_config::ValueLimit;
use nicekv_config::address;
use nicekv_gateway::{
    Gateway, GatewayConfig, KnownKeyspaces, Listeners, Stored, TlsFiles, UserSource, note_metadata_silence,
};
use nicekv_metadata::{ClusterInfo, KeyspaceInfo, UsageStatus};
use nicekv_metrics::Source;
use nicekv_operator::client::known_to_clients;
use nicekv_operator::failure::Failure;
use nicekv_proto::KeyspaceId;
use nicekv_runtime::admin::NoLeader;
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{Edges, Stop, UdpEndpoint, Uplink, admin, new_client_id, now};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

/// Interval between checks for new keyspaces.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let reason = address::bind_reason(&error);
        Failure::Environment(format!("cannot listen for Redis clients on {address}: {reason}"))
    })
}

/// Flags of a gateway, which override the file.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct GatewayFlags {
    /// Threads that serve Redis clients, 1 to 64 [default: from the file, or half of the processors, 1 to 8]
    #[arg(long, value_name = "N")]
    pub(crate) gateway_threads: Option<ThreadCount>,
    /// Memory in MiB for large arguments and values (above 4 KiB) of all connections; further ones
    /// wait; one command may use half [default: from the file, or 256, or twice the longest value]
    #[arg(long, value_name = "MIB")]
    pub(crate) gateway_large_mib: Option<NonZero<usize>>,
    /// Longest value in MiB that Redis clients may set or get, 1 to 512 [default: from the file, or
    /// 64]
    #[arg(long, value_name = "MIB")]
    pub(crate) gateway_value_mib: Option<ValueLimit>,
    /// File with the default user's password on one line [default: from the file, or no password]
    #[arg(long, value_name = "FILE", conflicts_with = "acl_file")]
    pub(crate) password_file: Option<PathBuf>,
    /// File with users as lines of a Redis ACL file: user NAME on >PASSWORD ~PATTERN +@CATEGORY -COMMAND …; `ACL LOAD` reads it again [default: from the file]
    #[arg(long, value_name = "FILE")]
    pub(crate) acl_file: Option<PathBuf>,
    /// Serve clients on other hosts even without a password
    #[arg(long)]
    pub(crate) no_protected_mode: bool,
    /// Address for Redis clients with TLS; needs --tls-certificate and --tls-key [default: from the file, or none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::parse)]
    pub(crate) tls_resp: Option<SocketAddr>,
    /// Certificate of the gateway, with its intermediates (PEM) [default: from the file]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM) [default: from the file]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authority of client certificates (PEM); clients must show one of them [default: from the
    /// file, or clients need none]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
}

impl GatewayFlags {
    /// The settings from flags; where a flag is absent, from the file.
    pub(crate) fn settings(&self, section: Option<&GatewaySection>) -> Result<Settings, Failure> {
        let of_file = |section: &GatewaySection| users(&section.password_file, &section.acl_file);
        let users = users(&self.password_file, &self.acl_file).or(section.and_then(of_file));
        let settings = Settings {
            threads: self.gateway_threads.or(section.and_then(|section| section.threads)),
            memory_mib_max: section.and_then(|section| section.memory_mib_max),
            large_mib_max: self.gateway_large_mib.or(section.and_then(|section| section.large_mib_max)),
            value_mib_max: self.gateway_value_mib.or(section.and_then(|section| section.value_mib_max)),
            users: users.unwrap_or_default(),
            protected_mode: !self.no_protected_mode && section.is_none_or(|section| section.protected_mode),
            tls: self.tls(section)?,
        };
        settings.check()?;
        Ok(settings)
    }
}

impl GatewayFlags {
    /// The TLS address and files, if TLS is configured.
    fn tls(&self, section: Option<&GatewaySection>) -> Result<Option<(SocketAddr, TlsFiles)>, Failure> {
        let of_file =
            |field: fn(&GatewaySection) -> &Option<PathBuf>| section.and_then(|one| field(one).clone());
        let address = section.and_then(|section| section.tls_resp).map(SocketAddr::V4);
        let certificate = self.tls_certificate.clone().or(of_file(|section| &section.tls_certificate));
        let key = self.tls_key.clone().or(of_file(|section| &section.tls_key));
        let ca = self.tls_ca.clone().or(of_file(|section| &section.tls_ca));
        match (self.tls_resp.or(address), certificate, key, ca) {
            (Some(address), Some(certificate), Some(key), ca) => {
                Ok(Some((address, TlsFiles { certificate, key, ca })))
            }
            (None, None, None, None) => Ok(None),
            (Some(_), ..) => {
                Err(Failure::Environment("--tls-resp needs --tls-certificate and --tls-key".into()))
            }
            (None, ..) => Err(Failure::Environment(
                "--tls-certificate, --tls-key and --tls-ca need --tls-resp ADDR:PORT".into(),
            )),
        }
    }
}

fn users(password_file: &Option<PathBuf>, acl_file: &Option<PathBuf>) -> Option<UserSource> {
    let of_password = password_file.clone().map(UserSource::PasswordFile);
    acl_file.clone().map(UserSource::AclFile).or(of_password)
}

/// Settings of a gateway; for absent ones, the defaults apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    threads: Option<ThreadCount>,
    memory_mib_max: Option<usize>,
    large_mib_max: Option<NonZero<usize>>,
    value_mib_max: Option<ValueLimit>,
    users: UserSource,
    protected_mode: bool,
    tls: Option<(SocketAddr, TlsFiles)>,
}

impl Settings {
    /// Checks that the files that the settings name can be read.
    fn check(&self) -> Result<(), Failure> {
        let tls = self.tls.as_ref().map_or(Ok(()), |(_, files)| files.check());
        self.users.check().and(tls).map_err(Failure::Environment)
    }

    /// Binds `plain`, and the TLS address of the settings.
    pub(crate) fn bind(&self, plain: Option<SocketAddr>) -> Result<Listeners, Failure> {
        let tls = self.tls.as_ref().map(|(address, _)| bind(*address)).transpose()?;
        Ok(Listeners { plain: plain.map(bind).transpose()?, tls })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(ThreadCount::default_here).into()
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// How clients log in at this address, in words, and whether clients who do not are refused.
    pub(crate) fn access(&self, address: SocketAddr) -> (&'static str, bool) {
        match self.users {
            UserSource::PasswordFile(_) => ("password", true),
            UserSource::AclFile(_) => ("user and password", true),
            UserSource::Open if !self.protected_mode => ("no password", false),
            UserSource::Open if address.ip().is_loopback() => ("no password", false),
            UserSource::Open => ("no password, but protected mode refuses other hosts", true),
        }
    }

    /// The options with which `redis-cli` logs in.
    pub(crate) fn login(&self) -> &'static str {
        match self.users {
            UserSource::Open => "",
            UserSource::PasswordFile(_) => " --askpass",
            UserSource::AclFile(_) => " --user NAME --askpass",
        }
    }

    fn apply(self, config: &mut GatewayConfig) {
        config.users = self.users;
        config.protected_mode = self.protected_mode;
        config.tls = self.tls.map(|(_, files)| files);
        if let Some(limit) = self.value_mib_max {
            config.client.value_bytes_max = limit.bytes();
            // One command may use half of the memory, so it must be at least twice the longest
            // value.
            config.large_bytes_max = config.large_bytes_max.max(2 * limit.bytes());
        }
        if let Some(mib) = self.memory_mib_max {
            config.memory_bytes_max = mib.saturating_mul(1 << 20);
        }
        if let Some(mib) = self.large_mib_max {
            config.large_bytes_max = mib.get().saturating_mul(1 << 20);
        }
    }
}

/// Prepares the threads of a gateway. Their native clients bind `address`; if the switch runs in
/// this process, they use its edges. The gateway starts with `keyspaces` and learns of new ones
/// from the metadata `instances`. `connections_max`: as many as the limit of open files allows.
pub(crate) fn prepare(
    name: &str,
    listeners: Listeners,
    address: Ipv4Addr,
    edges: Option<&Edges>,
    (keyspaces, instances): (Vec<Keyspace>, Vec<SocketAddrV4>),
    (settings, connections_max): (Settings, usize),
) -> Result<Prepared<Vec<Role>>, Failure> {
    let threads = settings.threads();
    let uplink = || {
        let endpoint = UdpEndpoint::bind(SocketAddrV4::new(address, 0))?;
        match edges {
            Some(edges) => Uplink::on_edge(endpoint, edges),
            None => Ok(endpoint.into()),
        }
    };
    let uplinks = (0..threads).map(|_| Ok((new_client_id()?, uplink()?))).collect::<io::Result<Vec<_>>>();
    let uplinks = uplinks.map_err(Failure::environment)?;
    let first = *keyspaces.first().expect("every cluster has a default keyspace");
    let mut config = GatewayConfig::new(Config { keyspaces, ..Config::new(uplinks[0].0, first) });
    settings.apply(&mut config);
    config.connections_max = connections_max;
    let threads = Gateway::threads(listeners, uplinks, &config).map_err(Failure::environment)?;
    let known = threads[0].keyspaces();
    let mut watch = Watch::of(name, known, instances);
    let watch: Role = Box::new(move |stop| {
        stop.every(WATCH_INTERVAL, || watch.look(stop)).map_err(|error| error.to_string())
    });
    let role = |gateway: Gateway| -> Role {
        Box::new(move |stop| gateway.run(stop).map_err(|error| error.to_string()))
    };
    let source = Source::Gateway(name.to_owned(), threads[0].monitor());
    Ok(Prepared { role: threads.into_iter().map(role).chain([watch]).collect(), source })
}

/// Follows the keyspaces of the cluster. While no metadata instance answers, the gateway continues with the keyspaces that it knows.
struct Watch {
    name: String,
    known: KnownKeyspaces,
    instances: Vec<SocketAddrV4>,
    /// When the metadata service last answered, or the gateway started (boot-time clock).
    answered_ns: u64,
    /// The metadata service does not answer, and this has been logged.
    is_silent: bool,
}

impl Watch {
    fn of(name: &str, known: KnownKeyspaces, instances: Vec<SocketAddrV4>) -> Self {
        Self { name: name.to_owned(), known, instances, answered_ns: now().boot_ns, is_silent: false }
    }

    fn look(&mut self, stop: &Stop) {
        // The configuration file may name no metadata service.
        if self.instances.is_empty() {
            return;
        }
        match admin::ask(&self.instances, &AdminRequest::ClusterInfo, WATCH_TIMEOUT) {
            Ok(json) => self.on_answer(&json),
            // While this process stops, the whole cluster may be stopping, so no message is logged.
            Err(_) if stop.is_stopped() => {}
            Err(none) => self.on_silence(&none),
        }
    }

    fn on_answer(&mut self, json: &[u8]) {
        let Ok(info) = serde_json::from_slice::<ClusterInfo>(json) else { return };
        let Self { known, .. } = self;
        known.set(info.keyspaces.iter().map(|keyspace| known_to_clients(keyspace, info.port)).collect());
        known.set_stored(info.keyspaces.iter().map(stored).collect());
        self.answered_ns = now().boot_ns;
        note_metadata_silence(None);
        if std::mem::take(&mut self.is_silent) {
            emit("gateway", &self.name, Event::new(Level::Info, "metadata-answers"));
        }
    }

    fn on_silence(&mut self, none: &NoLeader) {
        note_metadata_silence(Some(self.answered_ns));
        if !std::mem::replace(&mut self.is_silent, true) {
            let reason = format!("waits for the metadata service: {none}");
            emit("gateway", &self.name, Event::new(Level::Warn, "metadata-silent").with("reason", &*reason));
        }
    }
}

/// An error message if this host has no route to the virtual rings.
pub(crate) fn missing_route(keyspaces: &[Keyspace]) -> Option<String> {
    let vrings = keyspaces.first()?.vrings;
    let ring = SocketAddrV4::new(vrings.unicast, vrings.port);
    let routed = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.connect(ring));
    routed.err().map(|error| {
        format!(
            "no route to {}/16, the virtual ring of requests ({error}): clients wait until there is one (docs/guide/operations.md, \"The network\")",
            vrings.unicast
        )
    })
}

/// The key counts of a keyspace, for INFO.
fn stored(keyspace: &KeyspaceInfo) -> Stored {
    let UsageStatus { keys, expiring, expiry_ms, .. } = keyspace.usage;
    Stored { keyspace: KeyspaceId(keyspace.id), keys, expiring, expiry_ms }
}

/// The addresses at which Redis clients reach this process.
pub(crate) struct RespAddresses {
    plain: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    /// The options with which `redis-cli` logs in.
    login: &'static str,
}

impl RespAddresses {
    pub(crate) fn of(listeners: &Listeners, login: &'static str) -> Result<Self, Failure> {
        let address = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose().map_err(Failure::environment)
        };
        Ok(Self { plain: address(&listeners.plain)?, tls: address(&listeners.tls)?, login })
    }

    /// The address without TLS if there is one, otherwise the one with TLS.
    pub(crate) fn preferred(&self) -> Result<SocketAddr, Failure> {
        let address = self.plain.or(self.tls);
        address.ok_or_else(|| Failure::Environment("no listener: pass --resp or --tls-resp".into()))
    }

    /// The addresses as they appear in the "ready" line.
    pub(crate) fn ready_words(&self) -> String {
        let named = [("resp", self.plain), ("tls-resp", self.tls)];
        let words = named.into_iter().filter_map(|(name, address)| Some(format!("{name}={}", address?)));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The `redis-cli` command line that connects to this gateway.
    pub(crate) fn redis_cli(&self) -> Result<String, Failure> {
        let (address, login) = (self.preferred()?, self.login);
        let tls = if self.plain.is_some() { "" } else { " --tls --cacert FILE" };
        Ok(format!("redis-cli -h {} -p {}{tls}{login}", address.ip(), address.port()))
    }
}

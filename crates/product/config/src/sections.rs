//! The other sections: a struct for each, whose fields are named as the keys. The schema describes
//! them.

use crate::address;
use crate::bounded::{ReserveMib, ValueLimit};
use nicekv_metadata::Timing;
use nicekv_runtime::BusyPoll;
use nicekv_switch_xdp::Hook;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// `[timing]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingSection {
    pub heartbeat_ms: u64,
    pub heartbeats_missed: u32,
    pub lease_ms: u64,
    pub probe_ms: u64,
    pub grace_heartbeats: u32,
    pub handoffs: bool,
    pub handoff_delay_ms: u64,
    pub rebalance_delay_ms: u64,
    pub balance_period_ms: u64,
    pub balance_requests_min: u32,
    pub collect_interval_ms: u64,
    pub target_timeout_ms: u64,
}

impl Default for TimingSection {
    fn default() -> Self {
        Self {
            heartbeat_ms: 40,
            heartbeats_missed: 3,
            lease_ms: 150,
            probe_ms: 10,
            grace_heartbeats: 10,
            handoffs: Timing::default().handoff_delay.is_some(),
            handoff_delay_ms: 200,
            rebalance_delay_ms: 5000,
            balance_period_ms: 10_000,
            balance_requests_min: 1000,
            collect_interval_ms: 3_600_000,
            target_timeout_ms: 600_000,
        }
    }
}

/// `[metadata]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataSection {
    pub address: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    #[serde(default, deserialize_with = "address::deserialize_all")]
    pub control: Vec<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<PathBuf>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
    #[serde(default)]
    pub store: Store,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceSection>,
}

/// Where the metadata service keeps its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// In a file on this instance's host
    #[default]
    File,
    /// In etcd, which several instances share; one of them leads
    Etcd,
}

/// An entry of `instances`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceSection {
    pub name: String,
    pub address: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    #[serde(default, deserialize_with = "address::deserialize_all")]
    pub control: Vec<SocketAddrV4>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
}

impl Default for MetadataSection {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::UNSPECIFIED,
            mac: None,
            switch_port: None,
            switch: None,
            control: vec![],
            data_directory: None,
            metrics: None,
            store: Store::default(),
            endpoints: vec![],
            ca_file: None,
            certificate_file: None,
            key_file: None,
            prefix: None,
            lease_ms: None,
            instances: vec![],
        }
    }
}

impl MetadataSection {
    /// Name of the first instance.
    pub const FIRST: &str = "metadata";
    const PREFIX: &str = "/nicekv";
    const LEASE_MS: u64 = 1000;

    /// Every instance; the first is described by this section itself.
    pub fn all(&self) -> Vec<InstanceSection> {
        let Self { address, mac, switch_port, switch, control, metrics, .. } = self.clone();
        let name = Self::FIRST.into();
        let first = InstanceSection { name, address, mac, switch_port, switch, control, metrics };
        std::iter::once(first).chain(self.instances.iter().cloned()).collect()
    }

    fn has_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    pub fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(Self::PREFIX)
    }

    pub fn lease_ms(&self) -> u64 {
        self.lease_ms.unwrap_or(Self::LEASE_MS)
    }

    /// Directory of the state with `store = "file"`. It has a default, because the state must be on
    /// disk: an instance that restarted without its state would start the cluster anew at term 1,
    /// and no switch would obey it.
    pub fn data_directory(&self) -> PathBuf {
        self.data_directory.clone().unwrap_or_else(|| usual_directory(Self::FIRST))
    }

    /// Checks the section for contradictions; the error is one line.
    pub fn check(&self) -> Result<(), String> {
        let all = self.all();
        let is_twice = |(index, instance): (usize, &InstanceSection)| {
            all[..index].iter().any(|before| before.name == instance.name)
        };
        let is_no_url = |endpoint: &&String| {
            let host = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
            host.is_none_or(|host| host.is_empty() || host.contains('/'))
        };
        let (is_etcd, prefix) = (self.store == Store::Etcd, self.prefix());
        let wrong = if all.iter().enumerate().any(is_twice) {
            "two instances have the same name".into()
        } else if !is_etcd && all.len() > 1 {
            "several instances need store = \"etcd\", to share their state".into()
        } else if is_etcd && self.endpoints.is_empty() {
            "store = \"etcd\" needs endpoints, such as \"http://10.20.0.2:2379\"".into()
        } else if !is_etcd && !self.endpoints.is_empty() {
            "endpoints need store = \"etcd\"".into()
        } else if is_etcd && self.data_directory.is_some() {
            "data_directory is only for store = \"file\"".into()
        } else if let Some(endpoint) = self.endpoints.iter().find(is_no_url) {
            format!("the endpoint {endpoint:?} is not a URL such as http://10.20.0.2:2379")
        } else if self.has_tls() && self.ca_file.is_none() {
            "https endpoints need ca_file, the authority of etcd's certificates".into()
        } else if !self.has_tls() && (self.ca_file.is_some() || self.certificate_file.is_some()) {
            "ca_file and certificate_file need https endpoints".into()
        } else if self.certificate_file.is_some() != self.key_file.is_some() {
            "certificate_file and key_file need each other".into()
        } else if prefix.is_empty() || prefix.ends_with('/') || prefix.len() > 256 {
            format!("prefix = {prefix:?} must have 1 to 256 bytes and not end with /")
        } else {
            return Ok(());
        };
        Err(format!("metadata: {wrong}"))
    }
}

/// `[[nodes]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    pub name: String,
    pub id: u16,
    pub address: Ipv4Addr,
    pub mac: MacAddress,
    pub switch_port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub spare: bool,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub coordinates: bool,
    #[serde(default = "NodeSection::busy_poll_us")]
    pub busy_poll_us: u64,
    #[serde(default = "NodeSection::kernel_get_mib")]
    pub kernel_get_mib: u32,
    #[serde(default = "NodeSection::copy_mib_per_second")]
    pub copy_mib_per_second: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_mib: Option<ReserveMib>,
    #[serde(default = "NodeSection::value_mib_max")]
    pub value_mib_max: ValueLimit,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
}

impl NodeSection {
    pub fn copy_mib_per_second() -> u64 {
        nicekv_replica::Timing::default().copy_bytes_per_second >> 20
    }

    pub fn value_mib_max() -> ValueLimit {
        ValueLimit::DEFAULT
    }

    pub fn kernel_get_mib() -> u32 {
        32
    }

    pub fn busy_poll_us() -> u64 {
        BusyPoll::DEFAULT.as_micros() as u64
    }
}

/// `[[switches]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchSection {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "address::deserialize_some")]
    pub control: Vec<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_mac: Option<MacAddress>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional_v4"
    )]
    pub openflow: Option<SocketAddrV4>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<NonZero<u32>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSection>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostSection>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_directory: Option<PathBuf>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address::deserialize_optional"
    )]
    pub metrics: Option<SocketAddr>,
}

/// The kinds of switches, by the keys that a section has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// A process that receives and forwards datagrams by a socket.
    UserSpace,
    /// eBPF programs in the kernel of its host.
    Kernel { router_mac: MacAddress },
    /// An OpenFlow switch elsewhere, which connects to its controller at `controller`.
    OpenFlow { controller: SocketAddrV4, router_mac: MacAddress },
}

impl SwitchSection {
    const DEVICE: &str = "lo";
    /// More than a client host needs, and too few to fill the queues of a switch.
    const REQUESTS_PER_SECOND: NonZero<u32> = NonZero::new(1_000_000).expect("not zero");

    /// Most requests per second from a port of an OpenFlow switch that leads to no server.
    pub fn requests_per_second(&self) -> u32 {
        self.requests_per_second.unwrap_or(Self::REQUESTS_PER_SECOND).get()
    }

    pub fn kind(&self) -> SwitchKind {
        match (self.router_mac, self.openflow) {
            (Some(router_mac), Some(controller)) => SwitchKind::OpenFlow { controller, router_mac },
            (Some(router_mac), None) => SwitchKind::Kernel { router_mac },
            (None, _) => SwitchKind::UserSpace,
        }
    }

    pub fn device(&self) -> &str {
        self.device.as_deref().unwrap_or(Self::DEVICE)
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    /// Directory of the newest term. It has a default, because the term must be on disk: an agent
    /// that forgot its term could obey an older leader.
    pub fn data_directory(&self) -> PathBuf {
        self.data_directory.clone().unwrap_or_else(|| usual_directory(&self.name))
    }
}

fn usual_directory(name: &str) -> PathBuf {
    Path::new("/var/lib/nicekv").join(name)
}

/// An entry of `ports`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    pub number: u16,
    /// The interface of a kernel switch's port; an OpenFlow switch has none here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(default)]
    pub hook: Hook,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<String>,
}

/// An entry of `hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSection {
    pub name: String,
    pub port: u16,
}

/// An Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

impl TryFrom<String> for MacAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes: Vec<u8> = text
            .split(':')
            .map(|byte| {
                u8::from_str_radix(byte, 16)
                    .map_err(|_| format!("{text:?} is not an Ethernet address such as 02:00:00:00:00:01"))
            })
            .collect::<Result<_, _>>()?;
        bytes
            .try_into()
            .map(Self)
            .map_err(|_| format!("{text:?} is not an Ethernet address such as 02:00:00:00:00:01"))
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.0.map(|byte| format!("{byte:02x}")).join(":")
    }
}

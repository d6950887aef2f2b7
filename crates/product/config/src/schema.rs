//! Describes every key of the configuration once: type, bounds, default, which roles read it, and
//! its meaning.
//!
//! Three things are derived from these tables: the checks of single values ([`problems`]), the
//! files that `nicekv config print` prints (`templates`), and the reference page (`reference`).
//! Checks that need several keys are in `check`.

use crate::check::Problem;
use crate::cluster::{MBIT, RoleKind};
use nicekv_metadata::LINK_BITS_PER_SECOND_BOUNDS;
use nicekv_proto::limits::{LARGE_BYTES_MAX, MEMBERS_MAX};
use nicekv_proto::placement::KEYSPACE_PARTITIONS_MAX;
use std::fmt::Write as _;
use toml::de::{DeTable, DeValue};

use RoleKind::{Gateway, Metadata, Node, Switch};

const ALL: &[RoleKind] = &[Metadata, Node, Switch, Gateway];
/// A key is suggested for a misspelled one if the two are at least this similar (0 to 1).
const SIMILARITY_MIN: f64 = 0.75;

/// The type of a value, with its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Integer(u64, u64),
    Boolean,
    /// A string; the text describes its form.
    Text(&'static str),
    OneOf(&'static [&'static str]),
    /// A list of strings; the text describes their form.
    Texts(&'static str),
    /// The same, but a single string stands for a list of one.
    OneOrTexts(&'static str),
    /// A list of tables.
    Tables(&'static Section),
}

/// The default of a key that a file does not set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Default {
    /// There is none: every section must set the key.
    Required,
    /// This value, as TOML.
    Value(&'static str),
    /// No value; the text describes what that means.
    Absent(&'static str),
}

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    /// An example value, as TOML.
    example: &'static str,
    pub(crate) help: &'static str,
    /// The roles that read the key.
    pub(crate) roles: &'static [RoleKind],
    /// All files of a cluster have to agree on it.
    pub(crate) is_shared: bool,
}

/// A table of the file, or a list of tables.
#[derive(Debug)]
pub(crate) struct Section {
    /// Name of the table; empty for the keys before the first table.
    pub(crate) name: &'static str,
    pub(crate) is_list: bool,
    pub(crate) help: &'static str,
    pub(crate) keys: &'static [Key],
}

const fn key(name: &'static str, kind: Kind, example: &'static str, help: &'static str) -> Key {
    Key { name, kind, default: Default::Required, example, help, roles: ALL, is_shared: false }
}

impl Key {
    const fn default(self, value: &'static str) -> Self {
        Self { default: Default::Value(value), ..self }
    }

    const fn optional(self, absent: &'static str) -> Self {
        Self { default: Default::Absent(absent), ..self }
    }

    const fn of(self, roles: &'static [RoleKind]) -> Self {
        Self { roles, ..self }
    }

    const fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// A value for printed files: the default, otherwise an example.
    pub(crate) fn shown_value(&self) -> &'static str {
        match self.default {
            Default::Value(value) => value,
            Default::Required | Default::Absent(_) => self.example,
        }
    }

    /// The type and bounds in words.
    pub(crate) fn expected(&self) -> String {
        match self.kind {
            Kind::Integer(0, u64::MAX) => "an integer from 0".into(),
            Kind::Integer(min, u64::MAX) => format!("an integer of at least {min}"),
            Kind::Integer(min, max) => format!("an integer from {min} to {max}"),
            Kind::Boolean => "true or false".into(),
            Kind::Text(form) => form.into(),
            Kind::OneOf(values) => {
                let quoted: Vec<_> = values.iter().map(|value| format!("\"{value}\"")).collect();
                quoted.join(" or ")
            }
            Kind::Texts(form) => format!("a list, each item {form}"),
            Kind::OneOrTexts(form) => format!("{form}, or a list of them"),
            Kind::Tables(_) => "a list of tables".into(),
        }
    }
}

const IPV4: Kind = Kind::Text("an IPv4 address");
const MAC: Kind = Kind::Text("an Ethernet address such as \"02:00:00:00:00:01\"");
const NAME: Kind = Kind::Text("a name");
const FILE: Kind = Kind::Text("a path");
const ADDRESS: &str = "ADDR:PORT";
const PREFIX: Kind = Kind::Text("a prefix such as \"10.20.2.0/24\"");
const PORT: Kind = Kind::Integer(1, u16::MAX as u64);
const SWITCH_PORT: Kind = Kind::Integer(0, u16::MAX as u64);
const REPLICAS: Kind = Kind::Integer(1, MEMBERS_MAX as u64);
const ANY: Kind = Kind::Integer(0, u64::MAX);
const POSITIVE: Kind = Kind::Integer(1, u64::MAX);
const PPM: Kind = Kind::Integer(0, u32::MAX as u64);
const U32: Kind = Kind::Integer(0, u32::MAX as u64);
const REPLICATION: Kind = Kind::OneOf(&["multicast", "chain", "quorum"]);
const VALUE_MIB: Kind = Kind::Integer(1, LARGE_BYTES_MAX as u64 >> 20);
const METRICS_HELP: &str = "address where Prometheus reads metrics, at /metrics";
const METRICS_ABSENT: &str = "metrics are not served";

pub(crate) static TOP: Section = Section {
    name: "",
    is_list: false,
    help: "Settings of the cluster and of its default keyspace, before the first section.",
    keys: &[
        key("role", Kind::OneOf(&["metadata", "node", "switch", "gateway"]), "\"metadata\"", "the role that this file is for; other roles refuse it")
            .optional("the file is for all roles"),
        key("cluster_id", Kind::Text("32 hexadecimal digits"), "\"000000000000000000000000c0ffee00\"", "identifies the cluster: 32 hexadecimal digits, the same in every file; `uuidgen | tr -d -` makes some")
            .shared(),
        key("port", PORT, "7400", "UDP: virtual rings, nodes and metadata; TCP: copies between nodes, and metadata control")
            .default("7400").shared(),
        key("replicas", REPLICAS, "3", "R: copies of each value in the default keyspace, at most the number of nodes")
            .default("3").of(&[Metadata, Gateway]).shared(),
        key("replication", REPLICATION, "\"quorum\"", "how the default keyspace is replicated: a primary orders puts (multicast), the head of a chain does (chain), or nobody (quorum)")
            .default("\"multicast\"").of(&[Metadata, Gateway]).shared(),
        key("write_set", REPLICAS, "2", "write quorum size (k), 1 to R: replicas that store a put before it is acknowledged; a get asks R - k + 1")
            .optional("required with replication = \"quorum\", refused otherwise").of(&[Metadata, Gateway]).shared(),
        key("partition_bits", Kind::Integer(0, KEYSPACE_PARTITIONS_MAX.ilog2() as u64), "6", "the default keyspace starts with 2^6 partitions; about eight per node spread load well; fixed once the cluster exists")
            .default("6").of(&[Metadata, Gateway]).shared(),
        key("unicast_vring", IPV4, "\"10.10.0.0\"", "virtual ring of gets: the base of a /16")
            .default("\"10.10.0.0\"").of(&[Metadata, Switch, Gateway]).shared(),
        key("multicast_vring", IPV4, "\"10.11.0.0\"", "virtual ring of puts: the base of a /16")
            .default("\"10.11.0.0\"").of(&[Metadata, Switch, Gateway]).shared(),
        key("group_ring", PREFIX, "\"10.64.0.0/12\"", "ring of object chunks: a /8 to /16 whose addresses stand for groups of storage targets")
            .optional("10.64.0.0/12, or 127.64.0.0/12 on loopback").of(&[Metadata, Switch]).shared(),
        key("link_mbit_per_second", Kind::Integer(*LINK_BITS_PER_SECOND_BOUNDS.start() / MBIT, *LINK_BITS_PER_SECOND_BOUNDS.end() / MBIT), "1000", "Mbit/s of the slowest link between clients and storage targets; transfers of chunks reserve time on links of this rate")
            .default("1000").of(&[Metadata]),
        key("clients", PREFIX, "\"10.20.2.0/24\"", "addresses of clients whose gets are spread over the replicas by source address")
            .optional("primaries answer all gets").of(&[Metadata]),
    ],
};

const ENDPOINTS: Kind = Kind::Texts("a URL such as \"http://10.20.0.2:2379\"");
const SWITCH_OF: &str = "the switch that it is connected to, where trunks connect several switches";
const SWITCH_OF_ABSENT: &str = "every switch has it at this port";

pub(crate) static METADATA: Section = Section {
    name: "metadata",
    is_list: false,
    help: "The metadata service: its first instance, and where its state is kept.",
    keys: &[
        key("address", IPV4, "\"10.20.0.2\"", "address of the first instance, as nodes reach it").of(&[Metadata, Node, Gateway]),
        key("mac", MAC, "\"02:00:00:00:00:02\"", "Ethernet address of its interface; a switch with ports accepts control messages from this address and port only")
            .optional("required where switches have ports").of(&[Metadata]),
        key("switch_port", SWITCH_PORT, "0", "the switch port that leads to it").optional("required where switches have ports").of(&[Metadata]),
        key("switch", NAME, "\"switch\"", SWITCH_OF).optional(SWITCH_OF_ABSENT).of(&[Metadata]),
        key("control", Kind::Texts(ADDRESS), "[\"10.20.0.2:7400\", \"10.30.0.1:7400\"]", "TCP addresses for switch agents and commands; there is no login: whoever reaches one may add and remove nodes")
            .optional("no agent or command can connect").of(&[Metadata]),
        key("data_directory", FILE, "\"/var/lib/nicekv/metadata\"", "directory of its state, with store = \"file\"").optional("/var/lib/nicekv/metadata").of(&[Metadata]),
        key("metrics", Kind::Text(ADDRESS), "\"10.20.0.2:9464\"", METRICS_HELP).optional(METRICS_ABSENT).of(&[Metadata]),
        key("store", Kind::OneOf(&["file", "etcd"]), "\"etcd\"", "where the state is kept: in a file, or in etcd 3.4 or newer, which several instances share")
            .default("\"file\"").of(&[Metadata]),
        key("endpoints", ENDPOINTS, "[\"http://10.20.0.2:2379\", \"http://10.20.0.3:2379\"]", "members of etcd; use https unless the network is your own")
            .optional("required with store = \"etcd\"").of(&[Metadata]),
        key("ca_file", FILE, "\"/etc/nicekv/etcd-ca.pem\"", "authority of etcd's certificates (PEM); the system's authorities are not trusted")
            .optional("required with https endpoints").of(&[Metadata]),
        key("certificate_file", FILE, "\"/etc/nicekv/etcd-client.pem\"", "client certificate for etcd (PEM), if it asks for one (--client-cert-auth)").optional("none").of(&[Metadata]),
        key("key_file", FILE, "\"/etc/nicekv/etcd-client.key\"", "private key of that certificate (PEM)").optional("none").of(&[Metadata]),
        key("prefix", Kind::Text("1 to 256 bytes that do not end with /"), "\"/nicekv\"", "prefix of the keys in etcd; history in etcd is compacted, so share it only with users who do not need theirs")
            .default("\"/nicekv\"").of(&[Metadata]),
        key("lease_ms", Kind::Integer(100, 600_000), "1000", "milliseconds for which an instance leads after etcd has renewed its lease; another takes over after 9/8 of it")
            .default("1000").of(&[Metadata]),
        key("instances", Kind::Tables(&INSTANCES), "[{ name = \"metadata-1\", address = \"10.20.0.3\", mac = \"02:00:00:00:00:03\", switch_port = 8, control = [\"10.20.0.3:7400\"], metrics = \"10.20.0.3:9464\" }]", "further instances (nicekv metadata --name metadata-1): one leads, the others stand by")
            .optional("one instance").of(&[Metadata, Node, Gateway]),
    ],
};

pub(crate) static INSTANCES: Section = Section {
    name: "metadata.instances",
    is_list: true,
    help: "A further instance of the metadata service; needs store = \"etcd\".",
    keys: &[
        key("name", NAME, "\"metadata-1\"", "its name: nicekv metadata --name metadata-1"),
        key("address", IPV4, "\"10.20.0.3\"", "its address, as nodes reach it"),
        key("mac", MAC, "\"02:00:00:00:00:03\"", "Ethernet address of its interface")
            .optional("required where switches have ports"),
        key("switch_port", SWITCH_PORT, "8", "the switch port that leads to it")
            .optional("required where switches have ports"),
        key("switch", NAME, "\"switch\"", SWITCH_OF).optional(SWITCH_OF_ABSENT),
        key(
            "control",
            Kind::Texts(ADDRESS),
            "[\"10.20.0.3:7400\"]",
            "TCP addresses for switch agents and commands",
        )
        .optional("no agent or command can connect"),
        key("metrics", Kind::Text(ADDRESS), "\"10.20.0.3:9464\"", METRICS_HELP).optional(METRICS_ABSENT),
    ],
};

const NODE_FILES: &[RoleKind] = &[Metadata, Node];

pub(crate) static NODES: Section = Section {
    name: "nodes",
    is_list: true,
    help: "A storage node. The metadata service's file has all nodes that the cluster starts with, a node's file has that node; `nicekv node add` adds others.",
    keys: &[
        key("name", NAME, "\"node-0\"", "its name: nicekv node --name node-0").of(NODE_FILES),
        key("id", SWITCH_PORT, "0", "its number, unique and never reused").of(NODE_FILES),
        key("address", IPV4, "\"10.20.1.1\"", "the address that it sends from and receives at").of(NODE_FILES),
        key("mac", MAC, "\"02:00:00:00:01:01\"", "Ethernet address of its interface, which the switch writes into frames").of(NODE_FILES),
        key("switch_port", SWITCH_PORT, "1", "the switch port that leads to it").of(NODE_FILES),
        key("switch", NAME, "\"switch\"", SWITCH_OF).optional(SWITCH_OF_ABSENT).of(NODE_FILES),
        key("spare", Kind::Boolean, "true", "true: the cluster does not start with it; `nicekv node add` adds it").default("false").of(NODE_FILES),
        key("data_directory", FILE, "\"/var/lib/nicekv/node-0\"", "directory of its log and values").optional("values are kept in memory only and are lost with the process").of(&[Node]),
        key("metrics", Kind::Text(ADDRESS), "\"10.20.1.1:9464\"", METRICS_HELP).optional(METRICS_ABSENT).of(&[Node]),
        key("copy_mib_per_second", ANY, "100", "MiB/s at which it copies partitions from other nodes, all together; 0: no limit").default("100").of(&[Node]),
        key("reserve_mib", Kind::Integer(4, u64::MAX / (1 << 26)), "64", "MiB set aside so that deletes still work on a full disk; use less where nodes share a disk").optional("an eighth of the disk, at most 64").of(&[Node]),
        key("value_mib_max", VALUE_MIB, "64", "MiB of the longest value that APPEND may make; the same at all nodes and gateways").default("64").of(&[Node]),
        key("coordinates", Kind::Boolean, "true", "true: forwards requests of chain keyspaces that clients send to the wrong node").default("false").of(&[Node]),
        key("kernel_get_mib", U32, "32", "MiB of replies from which the kernel answers gets, if the role may load eBPF programs; 0: none").default("32").of(&[Node]),
        key("busy_poll_us", ANY, "60", "microseconds for which the node busy-polls, yielding between polls, before it sleeps; 0: it sleeps at once").default("60").of(&[Node]),
    ],
};

const SWITCH_FILES: &[RoleKind] = &[Metadata, Switch];

pub(crate) static SWITCHES: Section = Section {
    name: "switches",
    is_list: true,
    help: "A switch. One with `router_mac` and `ports` is in the kernel (XDP or tc); one with `router_mac` and `openflow` is an OpenFlow 1.3 switch; one without these is in user space and receives on the interface `device`.",
    keys: &[
        key("name", NAME, "\"switch\"", "its name: nicekv switch --name switch").of(&[Metadata, Node, Switch]),
        key("control", Kind::OneOrTexts(ADDRESS), "[\"10.30.0.1:7400\"]", "`control` addresses of all metadata instances, reached without passing this switch's ports").optional("required in the switch's own file").of(&[Switch]),
        key("router_mac", MAC, "\"02:00:00:00:00:01\"", "kernel and OpenFlow switch: Ethernet address of the next hop to the virtual rings, in every host's neighbour table").optional("a user-space switch").of(SWITCH_FILES),
        key("openflow", Kind::Text(ADDRESS), "\"10.30.0.9:6653\"", "OpenFlow switch: where its controller, `nicekv switch`, waits for it to connect").optional("no OpenFlow switch").of(SWITCH_FILES),
        key("requests_per_second", Kind::Integer(1, u32::MAX as u64), "1000000", "OpenFlow switch: most requests per second from a port that leads to no server; those above are dropped").optional("1000000").of(&[Switch]),
        key("ports", Kind::Tables(&PORTS), "[{ number = 11, device = \"port-11\", trunk = \"switch-1\" }]", "kernel switch: its interfaces; OpenFlow switch, and the metadata service: only the trunks").optional("none").of(SWITCH_FILES),
        key("hosts", Kind::Tables(&HOSTS), "[{ name = \"node-0\", port = 2 }, { name = \"metadata\", port = 1 }]", "servers that are connected here at another port than their `switch_port`").optional("none").of(&[Metadata]),
        key("device", Kind::Text("an interface"), "\"lo\"", "user-space switch: the interface whose addresses include the virtual rings").optional("lo").of(&[Switch]),
        key("address", IPV4, "\"127.0.0.1\"", "user-space switch: the source address of what it forwards").optional("127.0.0.1").of(&[Node, Switch]),
        key("data_directory", FILE, "\"/var/lib/nicekv/switch\"", "directory of the newest term that it has obeyed").optional("/var/lib/nicekv/NAME").of(&[Switch]),
        key("metrics", Kind::Text(ADDRESS), "\"10.20.0.1:9464\"", METRICS_HELP).optional(METRICS_ABSENT).of(&[Switch]),
    ],
};

pub(crate) static PORTS: Section = Section {
    name: "switches.ports",
    is_list: true,
    help: "An interface of a kernel switch, or a trunk of an OpenFlow switch.",
    keys: &[
        key("number", SWITCH_PORT, "0", "the `switch_port` of the host that is connected here"),
        key("device", Kind::Text("an interface"), "\"port-0\"", "kernel switch: the interface").optional("a port of an OpenFlow switch"),
        key("hook", Kind::OneOf(&["auto", "xdp", "tc", "none"]), "\"tc\"", "where the program is attached: \"auto\" takes tc on veth and XDP elsewhere, or the other one if that fails; \"none\": frames only leave here")
            .default("\"auto\""),
        key("trunk", NAME, "\"switch-1\"", "the switch at the other end, whose port has trunk = this switch; switches form a tree").optional("hosts are connected here"),
    ],
};

pub(crate) static HOSTS: Section = Section {
    name: "switches.hosts",
    is_list: true,
    help: "A server that is connected to this switch at another port than its `switch_port`.",
    keys: &[
        key("name", NAME, "\"node-0\"", "a node or an instance of the metadata service"),
        key("port", SWITCH_PORT, "2", "the port of this switch"),
    ],
};

pub(crate) static GATEWAYS: Section = Section {
    name: "gateways",
    is_list: true,
    help: "A RESP gateway for Redis clients.",
    keys: &[
        key("name", NAME, "\"gateway-0\"", "its name: nicekv gateway --name gateway-0").of(&[Gateway]),
        key("listen", Kind::Text(ADDRESS), "\"127.0.0.1:6379\"", "address for Redis clients without TLS").optional("required unless tls_resp is set").of(&[Gateway]),
        key("tls_resp", Kind::Text(ADDRESS), "\"10.20.2.1:6380\"", "address for Redis clients with TLS").optional("no TLS").of(&[Gateway]),
        key("tls_certificate", FILE, "\"/etc/nicekv/gateway.pem\"", "certificate shown to clients, with its intermediates (PEM)").optional("required with tls_resp").of(&[Gateway]),
        key("tls_key", FILE, "\"/etc/nicekv/gateway.key\"", "private key of that certificate (PEM)").optional("required with tls_resp").of(&[Gateway]),
        key("tls_ca", FILE, "\"/etc/nicekv/clients.pem\"", "authority of the certificates that clients have to show (PEM)").optional("clients need no certificate").of(&[Gateway]),
        key("protected_mode", Kind::Boolean, "false", "true: refuse clients of other hosts while no password is set").default("true").of(&[Gateway]),
        key("threads", Kind::Integer(1, 64), "2", "threads that serve connections").optional("half of the processors, 1 to 8").of(&[Gateway]),
        key("memory_mib_max", ANY, "256", "MiB that the commands and replies of all connections may hold, large values not counted").default("256").of(&[Gateway]),
        key("large_mib_max", POSITIVE, "256", "MiB that large arguments and values (above 4 KiB) may hold; further ones wait; one command may hold half; at least twice value_mib_max unless set").default("256").of(&[Gateway]),
        key("value_mib_max", VALUE_MIB, "64", "MiB of the longest value that clients may set or get").default("64").of(&[Gateway]),
        key("password_file", FILE, "\"/etc/nicekv/password\"", "file with the default user's password on one line; `ACL LOAD` reads it again").optional("no password is needed").of(&[Gateway]),
        key("acl_file", FILE, "\"/etc/nicekv/users.acl\"", "file with users, as lines of a Redis ACL file, instead of password_file; `ACL LOAD` reads it again").optional("no users").of(&[Gateway]),
        key("metrics", Kind::Text(ADDRESS), "\"127.0.0.1:9464\"", METRICS_HELP).optional(METRICS_ABSENT).of(&[Gateway]),
    ],
};

const KEYSPACE_FILES: &[RoleKind] = &[Metadata, Switch, Gateway];
const AS_DEFAULT: &str = "as in the default keyspace";

pub(crate) static KEYSPACES: Section = Section {
    name: "keyspaces",
    is_list: true,
    help: "A keyspace beside the default one. Switches need its rings, gateways also its other settings.",
    keys: &[
        key("name", Kind::Text("1 to 64 letters, digits, '-', '_' and '.'"), "\"sessions\"", "its name").of(KEYSPACE_FILES),
        key("id", Kind::Integer(1, 15), "1", "its number: Redis clients use SELECT 1").of(KEYSPACE_FILES),
        key("partitioning", Kind::OneOf(&["hash", "range"]), "\"range\"", "by the hash of keys, or in order of their first 16 bytes").default("\"hash\"").of(&[Metadata, Gateway]),
        key("replication", REPLICATION, "\"quorum\"", "as for the default keyspace").default("\"multicast\"").of(&[Metadata, Gateway]),
        key("write_set", REPLICAS, "2", "write quorum size (k), as for the default keyspace").optional("required with replication = \"quorum\", refused otherwise").of(&[Metadata, Gateway]),
        key("replicas", REPLICAS, "3", "R: copies of each value").optional(AS_DEFAULT).of(&[Metadata, Gateway]),
        key("partitions", Kind::Integer(1, KEYSPACE_PARTITIONS_MAX as u64), "64", "number of partitions that it starts with, a power of two").optional(AS_DEFAULT).of(&[Metadata, Gateway]),
        key("balancing", Kind::OneOf(&["none", "migrate", "hot"]), "\"migrate\"", "\"migrate\": partitions move, split and merge by load (not with quorum); \"hot\": the most requested keys are copied to other nodes, see [hot] (multicast only)")
            .default("\"none\"").of(&[Metadata, Gateway]),
        key("partition_keys", POSITIVE, "100000", "with balancing = \"migrate\": split partitions with more keys").optional("no limit").of(&[Metadata]),
        key("partition_bytes", POSITIVE, "100000000", "with balancing = \"migrate\": split partitions with more bytes of keys and values").optional("no limit").of(&[Metadata]),
        key("chunks", Kind::OneOf(&["multicast", "unicast"]), "\"multicast\"", "its keys name objects, whose chunks are sent once to all targets (multicast) or to one after the other (unicast); needs multicast replication")
            .optional("it holds values, not objects").of(&[Metadata]),
        key("unicast_vring", IPV4, "\"10.12.0.0\"", "virtual ring of its gets: the base of a /16").optional("10.(10 + 2 id).0.0; from id 5 on 10.(30 + 2 id).0.0").of(KEYSPACE_FILES),
        key("multicast_vring", IPV4, "\"10.13.0.0\"", "virtual ring of its puts: the base of a /16").optional("the /16 after unicast_vring").of(KEYSPACE_FILES),
    ],
};

pub(crate) static TIMING: Section = Section {
    name: "timing",
    is_list: false,
    help: "How soon a silent node is replaced, and what happens periodically. With the defaults a node is suspected within about 130 ms.",
    keys: &[
        key("heartbeat_ms", POSITIVE, "40", "milliseconds between heartbeats of a node").default("40").of(&[Metadata, Node]).shared(),
        key("heartbeats_missed", Kind::Integer(1, u32::MAX as u64), "3", "missed heartbeats after which a node is suspected").default("3").of(&[Metadata]),
        key("lease_ms", ANY, "150", "milliseconds for which a node may answer gets after a heartbeat; must exceed heartbeat_ms").default("150").of(&[Metadata]),
        key("probe_ms", POSITIVE, "10", "milliseconds between probes of a doubtful node; twelve without an answer make it suspected").default("10").of(&[Metadata]),
        key("grace_heartbeats", Kind::Integer(1, u32::MAX as u64), "10", "heartbeats for which the first node waits for the others after a restart of all").default("10").of(&[Metadata]),
        key("handoffs", Kind::Boolean, "false", "true: other nodes stand in for members that are away").default("true").of(&[Metadata]),
        key("handoff_delay_ms", ANY, "200", "milliseconds until they do; no delay where too few members are left for puts").default("200").of(&[Metadata]),
        key("rebalance_delay_ms", ANY, "5000", "milliseconds until a partition's preferred primary leads it again; 0: never").default("5000").of(&[Metadata]),
        key("balance_period_ms", Kind::Integer(2_000, u64::MAX), "10000", "milliseconds over which balancing = \"migrate\" counts requests; a partition moves at most once in ten periods").default("10000").of(&[Metadata]),
        key("balance_requests_min", U32, "1000", "requests to a keyspace in a period below which its load is ignored").default("1000").of(&[Metadata]),
        key("collect_interval_ms", ANY, "3600000", "milliseconds between garbage collections of object chunks; 0: only `nicekv object gc --now`").default("3600000").of(&[Metadata]),
        key("target_timeout_ms", ANY, "600000", "milliseconds until a storage target that is away counts as lost and its chunks are copied again; 0: never").default("600000").of(&[Metadata]),
    ],
};

pub(crate) static HOT: Section = Section {
    name: "hot",
    is_list: false,
    help: "How hot keys are found and copied, in keyspaces with balancing = \"hot\". Shares are in millionths (ppm).",
    keys: &[
        key("period_ms", Kind::Integer(100, 60_000), "1000", "milliseconds between two evaluations of the request counts").default("1000").of(&[Metadata]),
        key("keys_max", U32, "10000", "K: keys with an entry in a switch, 1 to 10000").default("10000").of(&[Metadata]),
        key("stages", U32, "4", "d: stages of the switch's HashPipe, which counts keys without an entry, 1 to 8").default("4").of(&[Metadata]),
        key("history_ppm", PPM, "500000", "alpha: weight of the previous period in a prediction, below 1000000").default("500000").of(&[Metadata]),
        key("requests_min", U32, "4", "requests in a period below which a key is neither watched nor copied").default("4").of(&[Metadata]),
        key("threshold_start_ppm", PPM, "100000", "T0: initial threshold, as a share of the mean node load; keys above it are copied").default("100000").of(&[Metadata]),
        key("threshold_min_ppm", PPM, "400", "lower bound of the threshold T").default("400").of(&[Metadata]),
        key("threshold_factor_ppm", PPM, "500000", "gamma: factor by which T shrinks while load is uneven").default("500000").of(&[Metadata]),
        key("imbalance_max_ppm", PPM, "15000", "load is uneven if the most loaded node exceeds the mean by more than this").default("15000").of(&[Metadata]),
        key("calm_periods", U32, "8", "periods of even load after which T rises again").default("8").of(&[Metadata]),
        key("slack_ppm", PPM, "50000", "share by which a key's load must pass a border before its copies change").default("50000").of(&[Metadata]),
        key("values_max", U32, "64", "keys whose gets the switch answers from its own copy, 0 to 1024; 0: none").default("64").of(&[Metadata]),
        key("holders_max", U32, "31", "nodes beside a partition's members that hold copies of a key, 0 to 31; values_max = N and holders_max = 0 is NetCache").default("31").of(&[Metadata]),
    ],
};

pub(crate) static LOG: Section = Section {
    name: "log",
    is_list: false,
    help: "Events on standard error, one per line; none per request.",
    keys: &[
        key("level", Kind::OneOf(&["off", "error", "warn", "info", "debug"]), "\"debug\"", "least severe events that are logged: error (a role ends), warn (something is wrong), info (something changed), debug, or off").default("\"info\""),
        key("format", Kind::OneOf(&["line", "json"]), "\"json\"", "\"line\" for people, or \"json\": one object per line").default("\"line\""),
    ],
};

/// Every section, in the order of the files.
pub(crate) static SECTIONS: [&Section; 9] =
    [&TOP, &METADATA, &NODES, &SWITCHES, &GATEWAYS, &KEYSPACES, &TIMING, &HOT, &LOG];

/// Every problem of a single key or value: unknown, missing, of the wrong type or out of bounds.
pub(crate) fn problems(text: &str, document: &DeTable<'_>) -> Vec<Problem> {
    let mut checked = Checked { text, found: Vec::new() };
    for (name, value) in document {
        let (name, span) = (name.get_ref().as_ref(), value.span());
        match SECTIONS.iter().find(|section| !section.name.is_empty() && section.name == name) {
            Some(section) => checked.section(section, name, value.get_ref()),
            None => match TOP.keys.iter().find(|key| key.name == name) {
                Some(key) => checked.value(key, name.into(), value.get_ref(), span),
                None => checked.unknown(name.into(), name, &TOP),
            },
        }
    }
    checked.missing("", &TOP, document);
    checked.found
}

struct Checked<'a> {
    text: &'a str,
    found: Vec<Problem>,
}

impl Checked<'_> {
    fn add(&mut self, place: String, line: String) {
        self.found.push(Problem { place, line });
    }

    fn section(&mut self, section: &Section, place: &str, value: &DeValue<'_>) {
        match (value, section.is_list) {
            (DeValue::Table(table), false) => self.table(section, place, table),
            (DeValue::Array(items), true) => self.tables(section, place, items),
            (_, true) => self.add(place.into(), format!("must be a list of tables: write [[{place}]]")),
            (_, false) => self.add(place.into(), format!("must be a table: write [{place}]")),
        }
    }

    fn tables(&mut self, section: &Section, place: &str, items: &toml::de::DeArray<'_>) {
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}.{index}");
            match item.get_ref() {
                DeValue::Table(table) => self.table(section, &place, table),
                _ => self.add(place, "must be a table, { … }".into()),
            }
        }
    }

    fn table(&mut self, section: &Section, place: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let name = name.get_ref().as_ref();
            let place = format!("{place}.{name}");
            match section.keys.iter().find(|key| key.name == name) {
                Some(key) => self.value(key, place, value.get_ref(), value.span()),
                None => self.unknown(place, name, section),
            }
        }
        self.missing(place, section, table);
    }

    fn missing(&mut self, place: &str, section: &Section, table: &DeTable<'_>) {
        for key in section.keys.iter().filter(|key| matches!(key.default, Default::Required)) {
            if !table.iter().any(|(name, _)| name.get_ref() == key.name) {
                let place = if place.is_empty() { key.name.into() } else { format!("{place}.{}", key.name) };
                self.add(place, format!("missing: {}, such as {}", key.help, key.example));
            }
        }
    }

    fn unknown(&mut self, place: String, name: &str, section: &Section) {
        let sections = SECTIONS.iter().filter(|_| section.name.is_empty()).map(|section| section.name);
        let names = section.keys.iter().map(|key| key.name).chain(sections).filter(|name| !name.is_empty());
        let similarity = |known: &str| strsim::jaro_winkler(name, known);
        let closest =
            names.map(|known| (similarity(known), known)).max_by(|one, other| one.0.total_cmp(&other.0));
        let advice = match closest.filter(|(similarity, _)| *similarity >= SIMILARITY_MIN) {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => "`nicekv config reference` lists all keys".into(),
        };
        self.add(place, format!("unknown key; {advice}"));
    }

    fn value(&mut self, key: &Key, place: String, value: &DeValue<'_>, span: std::ops::Range<usize>) {
        let is_text = |value: &DeValue<'_>| matches!(value, DeValue::String(_));
        let is_right = match (key.kind, value) {
            (Kind::Tables(section), DeValue::Array(items)) => return self.tables(section, &place, items),
            (Kind::Integer(min, max), DeValue::Integer(number)) => {
                let number = i128::from_str_radix(number.as_str(), number.radix());
                number.is_ok_and(|number| (i128::from(min)..=i128::from(max)).contains(&number))
            }
            (Kind::Boolean, DeValue::Boolean(_)) => true,
            (Kind::Text(_) | Kind::OneOrTexts(_), DeValue::String(_)) => true,
            (Kind::OneOf(values), DeValue::String(text)) => values.contains(&text.as_ref()),
            (Kind::Texts(_) | Kind::OneOrTexts(_), DeValue::Array(items)) => {
                items.iter().all(|item| is_text(item.get_ref()))
            }
            _ => false,
        };
        if !is_right {
            let mut line = format!(
                "{} is not {}",
                self.text.get(span).unwrap_or_default().replace('\n', " "),
                key.expected()
            );
            if matches!(key.kind, Kind::Text(_) | Kind::Texts(_) | Kind::OneOrTexts(_) | Kind::Tables(_)) {
                _ = write!(line, "; write {} = {}", key.name, key.shown_value());
            }
            self.add(place, line);
        }
    }
}

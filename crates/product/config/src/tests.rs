//! Tests of the file for a whole cluster: the configuration that it gives, and the places that
//! errors name.

use crate::cluster::ClusterConfig;
use crate::read::parse_with;
use crate::templates::Template;
use crate::{GatewaySection, HotSection, MacAddress, Replication, SwitchKind, TimingSection};
use nicekv_proto::NodeId;
use nicekv_proto::placement::GroupRing;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

/// The printed file for a whole cluster, with every default uncommented.
static EXAMPLE: LazyLock<String> = LazyLock::new(|| {
    let set = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => rest.to_owned(),
        _ => line.to_owned(),
    };
    Template::Cluster.text().lines().map(set).map(|line| line + "\n").collect()
});

fn parse(text: &str) -> Result<ClusterConfig, String> {
    parse_with(text, |_| {})
}

#[test]
fn example_has_the_defaults() {
    let config = parse(&EXAMPLE).unwrap();
    assert_eq!(config.timing, TimingSection::default());
    assert_eq!(config.hot, HotSection::default());
    assert_eq!(config.replication, Replication::default());
    assert_eq!(config.nodes[0].busy_poll_us, 60);
    assert_eq!(config.gateways[0].protected_mode, GatewaySection::protected_mode());
}

#[test]
fn gateway_threads_are_bounded() {
    let with = |count: &str| parse(&EXAMPLE.replacen("# threads = 2", &format!("threads = {count}"), 1));
    assert_eq!(usize::from(with("64").unwrap().gateways[0].threads.unwrap()), 64);
    for refused in ["0", "65"] {
        let error = with(refused).unwrap_err();
        assert!(
            error.ends_with(&format!("gateways[0].threads: {refused} is not an integer from 1 to 64")),
            "{error}"
        );
    }
}

/// The configuration with two switches; node-0 is connected to the second one at another port.
fn two_switches(hosts: &str) -> Result<nicekv_metadata::Config, String> {
    let second = format!(
        "[[switches]]\nname = \"other\"\ncontrol = \"10.30.0.1:7400\"\nhosts = {hosts}\n\n[[gateways]]"
    );
    parse(&EXAMPLE.replacen("[[gateways]]", &second, 1))?.metadata_config().map_err(|error| error.to_string())
}

#[test]
fn switches_may_connect_hosts_at_other_ports() {
    let hosts = r#"[{ name = "node-0", port = 7 }, { name = "metadata", port = 1 }]"#;
    let topology = two_switches(hosts).unwrap().topology;
    let (node, service) = (nicekv_metadata::host_id(NodeId(0)), nicekv_metadata::service_host_id(0));
    assert_eq!(
        (topology.port(0, node), topology.port(1, node), topology.port(1, service)),
        (None, Some(7), Some(1))
    );
    let error = two_switches(r#"[{ name = "node-9", port = 7 }]"#).unwrap_err();
    assert!(error.contains("other") && error.contains("node-9"), "{error}");
    let error = two_switches(r#"[{ name = "node-0", port = 2 }]"#).unwrap_err();
    assert!(error.contains("port 2"), "node-1 is connected there: {error}");
}

/// The configuration with a second switch that has these ports. node-0 and the metadata service are
/// connected to the first switch, the other nodes to the second.
fn with_a_trunk(ports: &str, hosts_of_first: &str) -> Result<nicekv_metadata::Config, String> {
    let second = format!(
        "[[switches]]\nname = \"switch-1\"\ncontrol = \"10.30.0.5:7400\"\nrouter_mac = \"02:00:00:00:00:01\"\nports = {ports}\n\n[[gateways]]"
    );
    let settled = |text: String, (line, switch): (&str, &str)| {
        text.replacen(line, &format!("{line}\nswitch = {switch:?} #"), 1)
    };
    let homes = [
        ("switch_port = 0", "switch"),
        ("switch_port = 1", "switch"),
        ("switch_port = 2", "switch-1"),
        ("switch_port = 3", hosts_of_first),
    ];
    let text = homes.into_iter().fold(EXAMPLE.replacen("[[gateways]]", &second, 1), settled);
    let text = text.replacen(
        "device = \"port-3\", hook = \"auto\" }",
        "device = \"port-3\", trunk = \"switch-1\" }",
        1,
    );
    parse(&text)?.metadata_config().map_err(|error| error.to_string())
}

#[test]
fn trunks_form_a_tree_of_switches() {
    let ports = "[{ number = 2, device = \"a\" }, { number = 1, device = \"b\", trunk = \"switch\" }]";
    let config = with_a_trunk(ports, "switch-1").unwrap();
    let homes: Vec<_> = config.nodes.iter().map(|node| node.home).collect();
    assert_eq!(homes, [Some(0), Some(1), Some(1)]);
    assert_eq!(config.topology.home(nicekv_metadata::service_host_id(0)), Some(0));
    for (ports, home, part) in [
        ("[{ number = 2, device = \"a\" }]", "switch-1", "which has none to"),
        (&ports.replace("\"switch\"", "\"other\""), "switch-1", "no switch \"other\""),
        (ports, "other", "no switch \"other\""),
        (&ports.replace("number = 1", "number = 3"), "switch-1", "port 3"),
        (&ports.replace("device = \"b\"", "device = \"b\", hook = \"none\""), "switch-1", "nor an edge"),
    ] {
        let error = with_a_trunk(ports, home).unwrap_err();
        assert!(error.contains(part) && !error.contains('\n'), "{ports}: {error}");
    }
    let user_space = EXAMPLE.replacen("\nrouter_mac", "\n# router_mac", 1).replacen(
        "device = \"port-1\"",
        "device = \"port-1\", trunk = \"switch\"",
        1,
    );
    assert!(parse(&user_space).unwrap_err().contains("router_mac"));
}

#[test]
fn errors_name_line_and_key() {
    let line_of =
        |key: &str| EXAMPLE.lines().position(|line| line.starts_with(key)).expect("in the example") + 1;
    let broken = |from: &str, to: &str| parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
    for (from, to, expected) in [
        (
            "\nreplicas = 3",
            "\nreplicas = \"three\"",
            format!(":{}: replicas: \"three\" is not an integer from 1 to 9", line_of("replicas")),
        ),
        (
            "\nheartbeat_ms",
            "\nheartbeat_s",
            format!(
                ":{}: timing.heartbeat_s: unknown key; did you mean `heartbeat_ms`?",
                line_of("heartbeat_ms")
            ),
        ),
        (
            "\nmac = \"02:00:00:00:00:02\"",
            "\nmac = \"02\"",
            format!(":{}: mac: \"02\" is not an Ethernet address such as 02:00:00:00:00:01", line_of("mac")),
        ),
        (
            "\ncontrol = \"10.30.0.1:7400\"",
            "\ncontrol = \"localhost\"",
            format!(
                ":{}: control: \"localhost\" is not an address such as 127.0.0.1:7400 or localhost:7400",
                line_of("control = \"")
            ),
        ),
        (
            "\ncluster_id =",
            "\n# cluster_id =",
            ": cluster_id: missing: identifies the cluster: 32 hexadecimal digits, the same in every file; \
             `uuidgen | tr -d -` makes some, such as \"000000000000000000000000c0ffee00\""
                .into(),
        ),
        (
            "\nreplicas = 3",
            "\nreplicas = 4",
            format!(
                ":{}: replicas: 4 replicas need as many nodes (spares do not count), but there are 3",
                line_of("replicas")
            ),
        ),
        (
            "\nprotected_mode = true",
            "\nprotected_mode = \"yes\"",
            format!(
                ":{}: gateways[0].protected_mode: \"yes\" is not true or false",
                line_of("protected_mode")
            ),
        ),
        (
            "\nstore = \"file\"",
            "\nstore = \"files\"",
            format!(":{}: metadata.store: \"files\" is not \"file\" or \"etcd\"", line_of("store")),
        ),
        (
            "\nlisten = \"127.0.0.1:6379\"",
            "\nlisten = 6379",
            format!(
                ":{}: gateways[0].listen: 6379 is not ADDR:PORT; write listen = \"127.0.0.1:6379\"",
                line_of("listen")
            ),
        ),
    ] {
        assert_eq!(broken(from, to), expected);
    }
    let syntax = broken("\nport = 7400", "\nport 7400");
    assert!(syntax.starts_with(&format!(":{}: ", line_of("port"))) && !syntax.contains('\n'), "{syntax}");
}

/// The example with store = "etcd" or other lines in `[metadata]`.
fn with_etcd(lines: &str) -> Result<ClusterConfig, String> {
    let text = EXAMPLE.replacen("\nstore = \"file\"", &format!("\n{lines}"), 1);
    // Removes defaults that the lines may set.
    let text = text.replacen("\nprefix = \"/nicekv\"", "", 1).replacen("\nlease_ms = 1000", "", 1);
    let directory = text.lines().find(|line| line.starts_with("data_directory")).unwrap().to_owned();
    parse(&text.replacen(&directory, "", 1))
}

#[test]
fn metadata_instances_share_etcd_and_have_distinct_addresses() {
    let other = |name: &str, address: &str, port: u16| {
        format!(
            "{{ name = {name:?}, address = {address:?}, mac = \"02:00:00:00:00:03\", switch_port = {port}, control = [\"{address}:7400\"] }}"
        )
    };
    let (one, etcd) =
        (other("metadata-1", "10.20.0.3", 8), "store = \"etcd\"\nendpoints = [\"http://10.20.0.2:2379\"]\n");
    let config = with_etcd(&format!("{etcd}instances = [{one}]")).unwrap();
    let services = config.metadata_config().unwrap().services;
    assert_eq!(services.iter().map(|service| service.switch_port).collect::<Vec<_>>(), [0, 8]);
    assert_eq!(config.metadata_addresses().len(), 2);
    assert_eq!(config.metadata_controls().len(), 3);
    let two = other("metadata-1", "10.20.0.4", 9);
    for (lines, part) in [
        (format!("{etcd}instances = [{one}, {two}]"), "is also the name of"),
        (format!("{etcd}instances = [{}]", other("metadata-1", "10.20.0.3", 1)), "10.20.0.3"),
        (format!("instances = [{one}]"), "etcd"),
        ("store = \"etcd\"".into(), "endpoints"),
        ("endpoints = [\"http://10.20.0.2:2379\"]".into(), "store"),
        ("store = \"etcd\"\nendpoints = [\"10.20.0.2:2379\"]".into(), "is not a URL such as http://"),
        (etcd.replace("http:", "https:"), "ca_file"),
        (format!("{etcd}ca_file = \"ca.pem\""), "https"),
        (format!("{}ca_file = \"a\"\nkey_file = \"k\"", etcd.replace("http:", "https:")), "need each other"),
        (format!("{etcd}prefix = \"/\""), "prefix"),
        (format!("{etcd}lease_ms = 99"), "lease_ms"),
    ] {
        let error = with_etcd(&lines).unwrap_err();
        assert!(error.contains(part) && !error.contains('\n'), "{lines}: {error}");
    }
}

#[test]
fn switch_control_is_one_address_or_a_list() {
    let control = |value: &str| {
        parse(&EXAMPLE.replacen("control = \"10.30.0.1:7400\"", &format!("control = {value}"), 1))
    };
    assert_eq!(control("\"10.30.0.1:7400\"").unwrap().switches[0].control.len(), 1);
    assert_eq!(control("[\"10.30.0.1:7400\", \"10.30.1.1:7400\"]").unwrap().switches[0].control.len(), 2);
    assert!(control("7400").unwrap_err().contains("7400 is not ADDR:PORT, or a list of them"));
}

#[test]
fn an_openflow_switch_has_an_address_for_hosts_and_only_trunks() {
    let with = |lines: &str| {
        let begin = EXAMPLE.find("\n[[switches]]").unwrap() + 1;
        let end = EXAMPLE[begin..].find("\n[log]").map_or(EXAMPLE.len(), |end| begin + end);
        let section = "[[switches]]\nname = \"switch\"\ncontrol = [\"10.30.0.1:7400\"]\n";
        parse(&format!("{}{section}{lines}\n{}", &EXAMPLE[..begin], &EXAMPLE[end..]))
    };
    let (mac, openflow) = ("router_mac = \"02:00:00:00:00:01\"", "openflow = \"10.30.0.9:6653\"");
    let section = |lines: &str| with(lines).unwrap().switches[0].clone();
    let controller = "10.30.0.9:6653".parse().unwrap();
    let expected = SwitchKind::OpenFlow { controller, router_mac: MacAddress([2, 0, 0, 0, 0, 1]) };
    let usual = section(&format!("{mac}\n{openflow}"));
    assert_eq!((usual.kind(), usual.requests_per_second()), (expected, 1_000_000));
    let bounded = section(&format!("{mac}\n{openflow}\nrequests_per_second = 5000"));
    assert_eq!(bounded.requests_per_second(), 5000);
    let port = |fields: &str| format!("{mac}\n{openflow}\nports = [{{ {fields}, trunk = \"switch-1\" }}]");
    for (lines, error) in [
        (openflow.to_owned(), "router_mac: missing: an OpenFlow switch needs the Ethernet address"),
        (port("number = 0"), "ports[0].number: is 0, but the ports of an OpenFlow switch begin with 1"),
        (port("number = 9, device = \"eth1\""), "ports[0].device: is only for a kernel switch; remove it"),
        (format!("{mac}\n{openflow}\nrequests_per_second = 0"), "0 is not an integer from 1 to 4294967295"),
        ("requests_per_second = 9".into(), "requests_per_second: is only for an OpenFlow switch"),
    ] {
        let refused = with(&lines).unwrap_err();
        assert!(refused.contains(error), "{lines}: {refused}");
    }
}

#[test]
fn hot_key_settings_out_of_bounds_name_the_key() {
    let place_of =
        |field: &str| EXAMPLE.lines().position(|line| line.starts_with(&format!("{field} ="))).unwrap();
    let with = |field: &str, value: u32| {
        let line = EXAMPLE.lines().nth(place_of(field)).unwrap();
        // With line breaks, because other keys may end in the same words.
        parse(&EXAMPLE.replacen(&format!("\n{line}\n"), &format!("\n{field} = {value}\n"), 1))
    };
    assert_eq!(with("keys_max", 9000).unwrap().hot.settings().keys.keys_max, 9000);
    assert_eq!(with("values_max", 0).unwrap().hot.settings().keys.values_max, 0);
    assert_eq!(with("holders_max", 0).unwrap().hot.settings().keys.holders_max, 0);
    for (field, value, why) in [
        ("keys_max", 0, "keys_max is 0, but must be from 1"),
        ("keys_max", 10_001, "keys_max is 10001, but table hot holds 10000"),
        ("stages", 0, "stages is 0"),
        ("period_ms", 99, "99 is not an integer from 100 to 60000"),
        ("history_ppm", 1_000_000, "history_ppm is 1000000"),
        ("calm_periods", 0, "calm_periods is 0"),
        ("values_max", 1025, "values_max is 1025, but must be from 0 to 1024"),
        ("holders_max", 32, "holders_max is 32, but must be from 0 to 31"),
    ] {
        let (error, number) = (with(field, value).unwrap_err(), place_of(field) + 1);
        assert!(error.starts_with(&format!(":{number}: hot.{field}: {why}")), "{error}");
    }
}

#[test]
fn group_ring_overlaps_neither_vrings_nor_hosts() {
    let with = |line: &str| parse(&EXAMPLE.replacen("# group_ring = \"10.64.0.0/12\"", line, 1));
    let ring = |line: &str| with(line).unwrap().vrings().unwrap().group().copied();
    let usual = GroupRing { port: 7400, target_port: 7401, ..GroupRing::on_network(7400) };
    assert_eq!(ring("group_ring = \"10.64.0.0/12\""), Some(usual));
    assert_eq!(ring(""), Some(usual), "the default");
    let other = GroupRing { base: Ipv4Addr::new(11, 0, 0, 0), length: 8, ..usual };
    assert_eq!(ring("group_ring = \"11.0.0.0/8\""), Some(other));
    for (line, error) in [
        ("group_ring = \"10.40.0.0/13\"", "overlap"),
        ("group_ring = \"10.64.0.0/20\"", "must be a /8 to /16"),
        ("group_ring = \"10.16.0.0/12\"", "is inside group_ring; give"),
        ("group_ring = \"64\"", "group_ring: \"64\" is not a prefix such as"),
    ] {
        let refused = with(line).unwrap_err();
        assert!(refused.contains(error), "{line}: {refused}");
    }
    // A keyspace may overlap the default group ring; then there are no groups.
    let within = EXAMPLE.replacen("# group_ring = \"10.64.0.0/12\"", "", 1);
    let within = within.replacen("unicast_vring = \"10.10.0.0\"", "unicast_vring = \"10.70.0.0\"", 1);
    assert_eq!(parse(&within).unwrap().vrings().unwrap().group(), None);
}

#[test]
fn link_rate_is_bounded() {
    let usual = "link_mbit_per_second = 1000";
    let with = |line: &str| parse(&EXAMPLE.replacen(usual, line, 1));
    let rate = |line: &str| with(line).unwrap().metadata_config().unwrap().link_bits_per_second;
    assert_eq!([rate(usual), rate("")], [1_000_000_000; 2]);
    assert_eq!(rate("link_mbit_per_second = 100"), 100_000_000);
    let number = EXAMPLE.lines().position(|line| line.starts_with(usual)).unwrap() + 1;
    for mbit in ["0", "9", "1000001", "9223372036854775807"] {
        let refused = with(&format!("link_mbit_per_second = {mbit}")).unwrap_err();
        let expected =
            format!(":{number}: link_mbit_per_second: {mbit} is not an integer from 10 to 1000000");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn gateway_contradictions_name_the_key() {
    let with = |lines: &str| parse(&EXAMPLE.replacen("listen = \"127.0.0.1:6379\"", lines, 1));
    let listen = "listen = \"127.0.0.1:6379\"\n";
    let files = "tls_certificate = \"c\"\ntls_key = \"k\"\n";
    let tls = "tls_resp = \"127.0.0.1:6380\"\n";
    let both = with(&format!("{listen}{tls}{files}")).unwrap();
    assert_eq!(both.gateways[0].addresses().count(), 2);
    assert_eq!(with(&format!("{tls}{files}")).unwrap().gateways[0].listen, None);
    assert!(both.gateways[0].protected_mode);
    for (lines, field, why) in [
        (String::new(), "listen", "missing: the address for Redis clients"),
        (format!("{listen}{tls}"), "tls_resp", "also needs tls_certificate and tls_key"),
        (format!("{listen}{tls}tls_certificate = \"c\"\n"), "tls_resp", "also needs tls_certificate"),
        (format!("{listen}{files}"), "tls_certificate", "need tls_resp"),
        (
            format!("{listen}{}{files}", tls.replace("6380", "6379")),
            "tls_resp",
            "is already used by the same role (listen)",
        ),
        (
            format!("{listen}{tls}{files}metrics = \"127.0.0.1:6380\"\n"),
            "metrics",
            "is already used by the same role (tls_resp)",
        ),
        (format!("{listen}password_file = \"p\"\nacl_file = \"u\"\n"), "acl_file", "replaces password_file"),
    ] {
        let error = with(&lines).unwrap_err();
        assert!(error.contains(&format!("gateways[0].{field}: ")) && error.contains(why), "{lines}: {error}");
    }
}

//! The example is complete, and errors say where they are.

use super::*;
use crate::sections::HostSection;

fn parse(text: &str) -> Result<ClusterConfig, String> {
    parse_with(text, |_| {})
}

#[test]
fn the_example_is_a_configuration_with_the_defaults() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.timing, TimingSection::default());
    assert_eq!(config.hot, HotSection::default());
    assert_eq!(config.replication, Replication::default());
    assert_eq!(config.nodes[0].linger_us, 60);
}

#[test]
fn the_example_has_every_field() {
    let mut config = parse(EXAMPLE).unwrap();
    // What the example only mentions.
    config.write_set = Some(2);
    config.switches[0].hosts = vec![HostSection { name: "node-0".into(), port: 2 }];
    config.switches[0].device = Some("lo".into());
    config.switches[0].ports[0].trunk = Some("switch-1".into());
    config.nodes[0].switch = Some("switch".into());
    config.switches[0].address = Some(Ipv4Addr::LOCALHOST);
    config.metadata.endpoints = vec!["http://10.20.0.2:2379".into()];
    config.metadata.ca_file = Some("/etc/nicekv/etcd-ca.pem".into());
    config.metadata.certificate_file = Some("/etc/nicekv/etcd-client.pem".into());
    config.metadata.key_file = Some("/etc/nicekv/etcd-client.key".into());
    config.metadata.prefix = Some("/nicekv".into());
    config.metadata.lease_ms = Some(1000);
    config.metadata.instances = config.metadata.all();
    let toml::Value::Table(all) = toml::Value::try_from(&config).unwrap() else { panic!("a table") };
    let mut tables = vec![&all];
    while let Some(table) = tables.pop() {
        for (field, value) in table {
            let is_described = EXAMPLE.lines().any(|line| {
                let line = line.trim_start_matches(['#', ' ', '[']);
                line.starts_with(&format!("{field} =")) || line.starts_with(&format!("{field}]"))
            });
            let is_inline = EXAMPLE.contains(&format!("{field} = "));
            assert!(is_described || is_inline, "{field} is not in the example");
            match value {
                toml::Value::Table(inner) => tables.push(inner),
                toml::Value::Array(items) => {
                    tables.extend(items.iter().filter_map(|item| item.as_table()));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn the_threads_of_a_gateway_are_bounded() {
    let with = |count: &str| parse(&EXAMPLE.replacen("threads = 2", &format!("threads = {count}"), 1));
    assert_eq!(usize::from(with("64").unwrap().gateways[0].threads.unwrap()), 64);
    for refused in ["0", "65"] {
        let error = with(refused).unwrap_err();
        assert!(error.contains(&format!("a gateway has 1 to 64 threads, not {refused}")), "{error}");
    }
}

/// Two switches, at the second of which node-0 hangs elsewhere.
fn two_switches(hosts: &str) -> Result<nicekv_metadata::Config, String> {
    let second = format!(
        "[[switches]]\nname = \"other\"\ncontrol = \"10.30.0.1:7400\"\nhosts = {hosts}\n\n[[gateways]]"
    );
    parse(&EXAMPLE.replacen("[[gateways]]", &second, 1))?.metadata_config().map_err(|error| error.to_string())
}

#[test]
fn switches_differ_in_what_hangs_where() {
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
    assert!(error.contains("port 2"), "node-1 hangs there: {error}");
}

/// The example with a second switch: node-0 and the metadata service at the first one, the other nodes at the second. `ports`: its own.
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
        "device = \"port-3\", hook = \"tc\" }",
        "device = \"port-3\", trunk = \"switch-1\" }",
        1,
    );
    parse(&text)?.metadata_config().map_err(|error| error.to_string())
}

#[test]
fn trunks_make_a_tree_of_switches() {
    let ports = "[{ number = 2, device = \"a\" }, { number = 1, device = \"b\", trunk = \"switch\" }]";
    let config = with_a_trunk(ports, "switch-1").unwrap();
    let homes: Vec<_> = config.nodes.iter().map(|node| node.home).collect();
    assert_eq!(homes, [Some(0), Some(1), Some(1)]);
    assert_eq!(config.topology.home(nicekv_metadata::service_host_id(0)), Some(0));
    for (ports, home, part) in [
        ("[{ number = 2, device = \"a\" }]", "switch-1", "none back"),
        (&ports.replace("\"switch\"", "\"other\""), "switch-1", "no switch \"other\""),
        (ports, "other", "no switch \"other\""),
        (&ports.replace("number = 1", "number = 3"), "switch-1", "port 3"),
        (&ports.replace("device = \"b\"", "device = \"b\", hook = \"none\""), "switch-1", "nor an edge"),
    ] {
        let error = with_a_trunk(ports, home).unwrap_err();
        assert!(error.contains(part) && !error.contains('\n'), "{ports}: {error}");
    }
    let user_space = EXAMPLE.replacen("router_mac", "# router_mac", 1).replacen(
        "device = \"port-1\"",
        "device = \"port-1\", trunk = \"switch\"",
        1,
    );
    assert!(parse(&user_space).unwrap_err().contains("router_mac"));
}

#[test]
fn an_error_names_line_and_field() {
    let line_of =
        |field: &str| EXAMPLE.lines().position(|line| line.starts_with(field)).expect("in the example") + 1;
    let broken = |from: &str, to: &str| parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
    for (from, to, parts) in [
        ("replicas = 3", "replicas = \"three\"", [format!(":{}:", line_of("replicas")), "replicas".into()]),
        ("heartbeat_ms", "heartbeat_s", [format!(":{}:", line_of("heartbeat_ms")), "heartbeat_s".into()]),
        ("\"02:00:00:00:00:02\"", "\"02\"", [format!(":{}:", line_of("mac")), "mac".into()]),
        (
            "\"10.30.0.1:7400\" ",
            "\"localhost\" ",
            [format!(":{}:", line_of("control = \"")), "localhost:7400".into()],
        ),
        ("port = 7400", "port 7400", [format!(":{}:", line_of("port")), "port".into()]),
        ("cluster_id =", "# cluster_id =", [":".into(), "missing field `cluster_id`".into()]),
        (
            "replicas = 3",
            "replicas = 4",
            [format!(":{}: replicas: 4 replicas", line_of("replicas")), "3".into()],
        ),
        ("6379\"", "6379", [format!(":{}:", line_of("listen")), "listen".into()]),
    ] {
        let error = broken(from, to);
        assert!(parts.iter().all(|part| error.contains(part)), "{to}: {error:?}, not {parts:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

/// The example with an etcd, and other lines in `[metadata]`.
fn with_etcd(lines: &str) -> Result<ClusterConfig, String> {
    let text = EXAMPLE.replacen("store = \"file\"", lines, 1);
    let directory = text.lines().find(|line| line.starts_with("data_directory")).unwrap().to_owned();
    parse(&text.replacen(&directory, "", 1))
}

#[test]
fn several_instances_share_an_etcd_and_have_places_of_their_own() {
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
        (format!("{etcd}instances = [{one}, {two}]"), "same name"),
        (format!("{etcd}instances = [{}]", other("metadata-1", "10.20.0.3", 1)), "10.20.0.3"),
        (format!("instances = [{one}]"), "etcd"),
        ("store = \"etcd\"".into(), "endpoints"),
        ("endpoints = [\"http://10.20.0.2:2379\"]".into(), "store"),
        ("store = \"etcd\"\nendpoints = [\"10.20.0.2:2379\"]".into(), "http://"),
        (etcd.replace("http:", "https:"), "ca_file"),
        (format!("{etcd}ca_file = \"ca.pem\""), "https"),
        (format!("{}ca_file = \"a\"\nkey_file = \"k\"", etcd.replace("http:", "https:")), "go together"),
        (format!("{etcd}prefix = \"/\""), "prefix"),
        (format!("{etcd}lease_ms = 99"), "lease_ms"),
    ] {
        let error = with_etcd(&lines).unwrap_err();
        assert!(error.contains(part) && !error.contains('\n'), "{lines}: {error}");
    }
}

#[test]
fn a_switch_names_one_instance_or_several() {
    let control = |value: &str| {
        parse(&EXAMPLE.replacen("control = \"10.30.0.1:7400\"", &format!("control = {value}"), 1))
    };
    assert_eq!(control("\"10.30.0.1:7400\"").unwrap().switches[0].control.len(), 1);
    assert_eq!(control("[\"10.30.0.1:7400\", \"10.30.1.1:7400\"]").unwrap().switches[0].control.len(), 2);
    assert!(control("7400").unwrap_err().contains("list of them"));
}

#[test]
fn what_hot_keys_cannot_be_found_by_is_refused_with_the_field() {
    let place_of =
        |field: &str| EXAMPLE.lines().position(|line| line.starts_with(&format!("{field} ="))).unwrap();
    let with = |field: &str, value: u32| {
        let line = EXAMPLE.lines().nth(place_of(field)).unwrap();
        parse(&EXAMPLE.replacen(line, &format!("{field} = {value}"), 1))
    };
    assert_eq!(with("keys_max", 9000).unwrap().hot.settings().keys.keys_max, 9000);
    assert_eq!(with("values_max", 0).unwrap().hot.settings().keys.values_max, 0);
    assert_eq!(with("holders_max", 0).unwrap().hot.settings().keys.holders_max, 0);
    for (field, value, why) in [
        ("keys_max", 0, "keys_max is 0, but must be from 1"),
        ("keys_max", 10_001, "keys_max is 10001, but table hot holds 10000"),
        ("stages", 0, "stages is 0"),
        ("period_ms", 99, "99; from 100 to 60000"),
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
fn a_ring_of_groups_is_beside_the_vrings_and_hosts_are_in_neither() {
    let with = |line: &str| parse(&EXAMPLE.replacen("group_ring = \"10.64.0.0/12\"", line, 1));
    let ring = |line: &str| with(line).unwrap().vrings().unwrap().group().copied();
    let usual = GroupRing { port: 7400, target_port: 7401, ..GroupRing::on_network(7400) };
    assert_eq!(ring("group_ring = \"10.64.0.0/12\""), Some(usual));
    assert_eq!(ring(""), Some(usual), "it is there without being asked for");
    let other = GroupRing { base: Ipv4Addr::new(11, 0, 0, 0), length: 8, ..usual };
    assert_eq!(ring("group_ring = \"11.0.0.0/8\""), Some(other));
    for (line, error) in [
        ("group_ring = \"10.40.0.0/13\"", "overlap"),
        ("group_ring = \"10.64.0.0/20\"", "is no /8 to /16"),
        ("group_ring = \"10.16.0.0/12\"", "lies inside the ring of groups; give"),
        ("group_ring = \"64\"", "group_ring: \"64\" is no prefix"),
    ] {
        let refused = with(line).unwrap_err();
        assert!(refused.contains(error), "{line}: {refused}");
    }
    // A keyspace that is configured there is served, and groups are not.
    let within = EXAMPLE.replacen("group_ring = \"10.64.0.0/12\"", "", 1);
    let within = within.replacen("unicast_vring = \"10.10.0.0\"", "unicast_vring = \"10.70.0.0\"", 1);
    assert_eq!(parse(&within).unwrap().vrings().unwrap().group(), None);
}

#[test]
fn links_carry_what_is_said_within_bounds() {
    let usual = "link_mbit_per_second = 1000";
    let with = |line: &str| parse(&EXAMPLE.replacen(usual, line, 1));
    let rate = |line: &str| with(line).unwrap().metadata_config().unwrap().link_bits_per_second;
    assert_eq!([rate(usual), rate("")], [1_000_000_000; 2]);
    assert_eq!(rate("link_mbit_per_second = 100"), 100_000_000);
    let number = EXAMPLE.lines().position(|line| line.starts_with(usual)).unwrap() + 1;
    for mbit in ["0", "9", "1000001", "9223372036854775807"] {
        let refused = with(&format!("link_mbit_per_second = {mbit}")).unwrap_err();
        let expected = format!(":{number}: link_mbit_per_second: {mbit}; from 10 to 1000000");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn a_gateway_is_told_what_makes_no_sense_together_by_its_field() {
    let with = |lines: &str| parse(&EXAMPLE.replacen("listen = \"127.0.0.1:6379\"", lines, 1));
    let listen = "listen = \"127.0.0.1:6379\"\n";
    let files = "tls_certificate = \"c\"\ntls_key = \"k\"\n";
    let tls = "tls_resp = \"127.0.0.1:6380\"\n";
    let both = with(&format!("{listen}{tls}{files}")).unwrap();
    assert_eq!(both.gateways[0].addresses().count(), 2);
    assert_eq!(with(&format!("{tls}{files}")).unwrap().gateways[0].listen, None);
    assert!(both.gateways[0].protected_mode);
    for (lines, field, why) in [
        (String::new(), "listen", "missing; say where"),
        (format!("{listen}{tls}"), "tls_resp", "takes tls_certificate and tls_key"),
        (format!("{listen}{tls}tls_certificate = \"c\"\n"), "tls_resp", "takes tls_certificate"),
        (format!("{listen}{files}"), "tls_certificate", "are of tls_resp"),
        (
            format!("{listen}{}{files}", tls.replace("6380", "6379")),
            "tls_resp",
            "is in use by the role itself (listen)",
        ),
        (format!("{listen}{tls}{files}").replace("6380", "9467"), "metrics", "is in use by the role itself"),
        (
            format!("{listen}password_file = \"p\"\nacl_file = \"u\"\n"),
            "acl_file",
            "instead of password_file",
        ),
    ] {
        let error = with(&lines).unwrap_err();
        assert!(error.contains(&format!("gateways[0].{field}: ")) && error.contains(why), "{lines}: {error}");
    }
}

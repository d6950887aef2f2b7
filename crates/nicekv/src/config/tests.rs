//! The example is complete, and errors say where they are.

use super::*;
use crate::config::sections::HostSection;

#[test]
fn the_example_is_a_configuration_with_the_defaults() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.timing, TimingSection::default());
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
    config.switches[0].address = Some(Ipv4Addr::LOCALHOST);
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
        ("port = 7400", "", [":".into(), "missing field `port`".into()]),
        ("replicas = 3", "replicas = 4", [": 4 replicas".into(), "3".into()]),
        ("6379\"", "6379", [format!(":{}:", line_of("listen")), "listen".into()]),
    ] {
        let error = broken(from, to);
        assert!(parts.iter().all(|part| error.contains(part)), "{to}: {error:?}, not {parts:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

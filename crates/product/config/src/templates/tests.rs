//! What is printed is what the structs say: every field that a role reads, with the default that it has.

use super::*;
use crate::log::LogSection;
use crate::sections::{HostSection, InstanceSection, MetadataSection, NodeSection};
use crate::sections::{PortSection, SwitchSection, TimingSection};
use crate::thread_count::ThreadCount;
use crate::value_limit::ValueLimit;
use crate::{ClusterConfig, GatewaySection, HotSection, KeyspaceSection, RoleKind, check, parse_with};
use nicekv_gateway::GatewayConfig;
use serde::de::DeserializeOwned;
use std::num::NonZero;

/// The roles', and what each is for.
const OF_ROLES: [(Template, RoleKind); 6] = [
    (Template::Metadata, RoleKind::Metadata),
    (Template::Node, RoleKind::Node),
    (Template::Switch, RoleKind::Switch),
    (Template::Edge, RoleKind::Switch),
    (Template::UserSwitch, RoleKind::Switch),
    (Template::Gateway, RoleKind::Gateway),
];

/// A field that a line assigns after `before`: `#` for a default, `# ` for an example.
fn assigned<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    let field = line.strip_prefix(before)?.split_once(" = ")?.0;
    let is_field = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_field.then_some(field)
}

/// The file with its defaults, and its examples, too.
fn uncommented(text: &str, with_examples: bool) -> String {
    let uncomment = |line: &str| {
        let is_section = |line: &str| line.strip_prefix("# [[").is_some();
        if assigned(line, "#").is_some() {
            line[1..].to_owned()
        } else if with_examples && (assigned(line, "# ").is_some() || is_section(line)) {
            line[2..].to_owned()
        } else {
            line.to_owned()
        }
    };
    text.lines().map(uncomment).collect::<Vec<_>>().join("\n")
}

/// What is in effect where a file says nothing.
fn resolved(mut config: ClusterConfig) -> ClusterConfig {
    config.metadata.prefix = Some(config.metadata.prefix().to_owned());
    config.metadata.lease_ms = Some(config.metadata.lease_ms());
    for switch in &mut config.switches {
        switch.data_directory = Some(switch.data_directory());
        if switch.router_mac.is_none() {
            (switch.device, switch.address) = (Some(switch.device().into()), Some(switch.address()));
        }
    }
    let keyspace = config.client_keyspaces().unwrap()[0];
    let client = nicekv_client::Config::new(nicekv_proto::ClientId(1), keyspace);
    let gateway_config = GatewayConfig::new(client);
    let memory_mib = gateway_config.memory_bytes_max >> 20;
    let large_mib = NonZero::new(gateway_config.large_bytes_max >> 20);
    let value_mib = ValueLimit::try_from(gateway_config.client.value_bytes_max >> 20).ok();
    for gateway in &mut config.gateways {
        gateway.memory_mib_max = gateway.memory_mib_max.or(Some(memory_mib));
        gateway.large_mib_max = gateway.large_mib_max.or(large_mib);
        gateway.value_mib_max = gateway.value_mib_max.or(value_mib);
        gateway.threads = gateway.threads.or(Some(ThreadCount::default_here()));
    }
    config
}

#[test]
fn each_is_a_configuration_of_its_role_and_its_defaults_are_those_in_effect() {
    for (template, role) in OF_ROLES {
        let read =
            |text: &str| parse_with(text, |_| {}).unwrap_or_else(|error| panic!("{template:?}{error}"));
        let plain = read(template.text());
        assert_eq!(plain.role, Some(role));
        let said = read(&uncommented(template.text(), false));
        assert_eq!(resolved(plain), resolved(said), "{template:?}");
    }
}

#[test]
fn examples_are_fields_too_and_every_field_says_what_it_is() {
    for (template, _) in OF_ROLES {
        let text = uncommented(template.text(), true);
        let parsed: Result<ClusterConfig, _> = toml::from_str(&text);
        parsed.unwrap_or_else(|error| panic!("{template:?}: {error}"));
        // Those that are the second of their kind say nothing new.
        let mut seen = Vec::new();
        for line in text.lines() {
            if line.starts_with('[') {
                seen.push(line.split(']').next().unwrap_or_default());
            }
            let is_again = seen.iter().filter(|section| Some(*section) == seen.last()).count() > 1;
            let is_list = line.ends_with('[');
            let says_nothing = assigned(line, "").is_some() && !line.contains("# ") && !is_list;
            assert!(is_again || !says_nothing, "{template:?}: {line}");
        }
    }
}

/// The fields of a struct, as its decoder tells them.
fn fields<T: DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("no-such-field = 1").err().expect("no struct has it").to_string();
    let told = error.split_once("expected").expect("unknown fields are refused").1;
    told.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A template, and what its role does not read.
fn all<'a>(template: Template, unread: &[&[&'a str]]) -> (Template, Vec<&'a str>) {
    (template, unread.concat())
}

#[test]
fn every_field_that_a_role_reads_is_there() {
    use Template::{Cluster, Edge, Gateway, Metadata, Node, Switch, UserSwitch};
    let rings = &["partitioning", "replication", "write_set", "replicas", "partitions"][..];
    let by_load = &["balancing", "partition_keys", "partition_bytes", "chunks"][..];
    let of_cluster = &["replicas", "replication", "write_set", "partition_bits", "clients"][..];
    let links = &["link_mbit_per_second"][..];
    let others = &["metadata", "nodes", "gateways", "timing", "hot"][..];
    let own = &[
        "data_directory",
        "coordinates",
        "copy_mib_per_second",
        "kernel_get_mib",
        "linger_us",
        "metrics",
        "reserve_mib",
        "value_mib_max",
    ][..];
    held::<ClusterConfig>(&[
        all(Metadata, &[&["gateways"]]),
        all(
            Node,
            &[
                of_cluster,
                links,
                &["unicast_vring", "multicast_vring", "group_ring", "gateways", "keyspaces", "hot"],
            ],
        ),
        all(Switch, &[of_cluster, links, others]),
        all(Edge, &[of_cluster, links, others]),
        all(UserSwitch, &[of_cluster, links, others]),
        all(Gateway, &[links, &["group_ring", "clients", "nodes", "switches", "timing", "hot"]]),
        all(Cluster, &[&["role"]]),
    ]);
    held::<MetadataSection>(&[all(Metadata, &[])]);
    held::<InstanceSection>(&[all(Metadata, &[])]);
    held::<NodeSection>(&[all(Node, &[]), all(Metadata, &[own])]);
    let in_kernel = &["device", "address"][..];
    held::<SwitchSection>(&[
        all(Switch, &[in_kernel]),
        all(Edge, &[in_kernel, &["hosts"]]),
        all(UserSwitch, &[&["router_mac", "ports", "hosts"]]),
    ]);
    held::<PortSection>(&[all(Switch, &[]), all(Edge, &[&["trunk"]])]);
    held::<HostSection>(&[all(Metadata, &[]), all(Cluster, &[])]);
    held::<GatewaySection>(&[all(Gateway, &[])]);
    held::<TimingSection>(&[all(Metadata, &[])]);
    held::<HotSection>(&[all(Metadata, &[]), all(Cluster, &[])]);
    let every = [Metadata, Node, Switch, Edge, UserSwitch, Gateway, Cluster];
    held::<LogSection>(&every.map(|template| all(template, &[])));
    let keyspaces = [Switch, Edge, UserSwitch].map(|template| all(template, &[rings, by_load]));
    held::<KeyspaceSection>(
        &[&keyspaces[..], &[all(Metadata, &[]), all(Gateway, &[&by_load[1..]])]].concat(),
    );
}

/// Whether the templates have every field of the struct but some.
#[track_caller]
fn held<T: DeserializeOwned>(templates: &[(Template, Vec<&str>)]) {
    let fields = fields::<T>();
    assert!(!fields.is_empty());
    for (template, unread) in templates {
        let text = uncommented(template.text(), true);
        for field in &fields {
            let is_there = text.contains(&format!("{field} = ")) || text.contains(&format!("[{field}]"));
            let is_read = !unread.contains(&field.as_str());
            assert!(is_there || !is_read, "{template:?} lacks {field}");
        }
        let unknown: Vec<_> =
            unread.iter().filter(|field| !fields.iter().any(|known| known == *field)).collect();
        assert!(unknown.is_empty(), "{unknown:?} are no fields");
    }
}

#[test]
fn what_is_wrong_is_told_with_the_line_of_its_field() {
    let text = Template::Metadata.text().replacen("\"10.20.1.2\"", "\"10.20.1.1\"", 1);
    let config: ClusterConfig = toml::from_str(&text).unwrap();
    let problems = check::problems(&config);
    let line = text.lines().position(|line| line == "address = \"10.20.1.1\"").unwrap() + 1;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = problems[0].located(&text);
    assert!(told.starts_with(&format!(":{line}: nodes[1].address: 10.20.1.1 is node-0's")), "{told}");
}

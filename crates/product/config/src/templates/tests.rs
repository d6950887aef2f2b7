//! Tests: printed files are valid, and the schema has the same keys as the structs.

use super::*;
use crate::bounded::{ThreadCount, ValueLimit};
use crate::cluster::ClusterConfig;
use crate::read::{decode, parse_with};
use crate::schema::{
    GATEWAYS, HOSTS, HOT, INSTANCES, KEYSPACES, LOG, METADATA, NODES, PORTS, SWITCHES, TIMING, TOP,
};
use crate::sections::{
    HostSection, InstanceSection, MetadataSection, NodeSection, PortSection, SwitchSection, TimingSection,
};
use crate::{GatewaySection, HotSection, KeyspaceSection, LogSection, check};
use nicekv_gateway::GatewayConfig;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::num::NonZero;

const OF_ROLES: [(Template, RoleKind); 6] = [
    (Template::Metadata, RoleKind::Metadata),
    (Template::Node, RoleKind::Node),
    (Template::Switch, RoleKind::Switch),
    (Template::Edge, RoleKind::Switch),
    (Template::UserSwitch, RoleKind::Switch),
    (Template::Gateway, RoleKind::Gateway),
];

/// The file with its defaults uncommented; with `with_examples`, its examples, too.
fn uncommented(text: &str, with_examples: bool) -> String {
    let uncomment = |line: &str| {
        let is_key = |rest: &str| rest.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(is_key_byte));
        match (line.strip_prefix("# "), line.strip_prefix('#')) {
            (Some(example), _) if with_examples && (is_key(example) || example.starts_with("[[")) => {
                example.into()
            }
            (None, Some(default)) if is_key(default) => default.into(),
            _ => line.to_owned(),
        }
    };
    text.lines().map(uncomment).collect::<Vec<_>>().join("\n")
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'_'
}

/// The configuration, with defaults filled in where the file sets no value.
fn resolved(mut config: ClusterConfig) -> ClusterConfig {
    config.metadata.prefix = Some(config.metadata.prefix().to_owned());
    config.metadata.lease_ms = Some(config.metadata.lease_ms());
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
fn templates_are_valid_and_show_the_defaults_in_effect() {
    for (template, role) in OF_ROLES {
        let read =
            |text: &str| parse_with(text, |_| {}).unwrap_or_else(|error| panic!("{template:?}{error}"));
        let plain = read(&template.text());
        assert_eq!(plain.role, Some(role));
        let set = read(&uncommented(&template.text(), false));
        assert_eq!(resolved(plain), resolved(set), "{template:?}");
    }
    parse_with(&Template::Cluster.text(), |_| {}).unwrap();
}

#[test]
fn examples_in_templates_are_valid_values() {
    for template in OF_ROLES.map(|(template, _)| template).into_iter().chain([Template::Cluster]) {
        let text = uncommented(&template.text(), true);
        decode(&text).unwrap_or_else(|errors| panic!("{template:?}: {errors:?}"));
        assert!(
            text.lines().filter(|line| line.starts_with('#')).all(|line| line.len() <= COLUMNS),
            "{text}"
        );
    }
}

/// The fields of a struct, according to its decoder's error for an unknown field.
fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
    let error = toml::from_str::<T>("no-such-field = 1").err().expect("no struct has it").to_string();
    let listed = error.split_once("expected").expect("unknown fields are refused").1;
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[track_caller]
fn is_described<T: DeserializeOwned>(section: &Section) {
    let keys: BTreeSet<String> = section.keys.iter().map(|key| key.name.to_owned()).collect();
    assert_eq!(keys, fields::<T>(), "{}", section.name);
}

#[test]
fn schema_has_every_field_of_the_structs() {
    is_described::<MetadataSection>(&METADATA);
    is_described::<InstanceSection>(&INSTANCES);
    is_described::<NodeSection>(&NODES);
    is_described::<SwitchSection>(&SWITCHES);
    is_described::<PortSection>(&PORTS);
    is_described::<HostSection>(&HOSTS);
    is_described::<GatewaySection>(&GATEWAYS);
    is_described::<KeyspaceSection>(&KEYSPACES);
    is_described::<TimingSection>(&TIMING);
    is_described::<HotSection>(&HOT);
    is_described::<LogSection>(&LOG);
    let sections = schema::SECTIONS.iter().map(|section| section.name).filter(|name| !name.is_empty());
    let keys = TOP.keys.iter().map(|key| key.name).chain(sections).map(str::to_owned);
    assert_eq!(keys.collect::<BTreeSet<_>>(), fields::<ClusterConfig>());
}

#[test]
fn every_problem_has_the_line_of_its_key() {
    let text = Template::Metadata.text().replacen("\"10.20.1.2\"", "\"10.20.1.1\"", 1);
    let config: ClusterConfig = toml::from_str(&text).unwrap();
    let problems = check::problems(&config);
    let line = text.lines().position(|line| line == "address = \"10.20.1.1\"").unwrap() + 1;
    let line = text.lines().skip(line).position(|line| line == "address = \"10.20.1.1\"").unwrap() + line + 1;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let located = problems[0].located(&text);
    let expected =
        "nodes[1].address: 10.20.1.1 is already used by node-0 (10.20.1.1); give node-1 (10.20.1.1) another";
    assert_eq!(located, format!(":{line}: {expected}"));
}

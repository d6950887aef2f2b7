//! The parameters of CONFIG: those that tools read, and the few that can be set.

use crate::shared::ServerState;
use nicekv_redis::host::Parameter;
use nicekv_redis::limits::ARGUMENT_BYTES_MAX;

/// A parameter: its name, how to read it, and how to set it, if it can be set.
struct Definition {
    name: &'static str,
    value: fn(&ServerState) -> String,
    set: Option<Set>,
}

/// How a numeric parameter is set.
#[derive(Clone, Copy)]
struct Set {
    least: i64,
    apply: fn(&ServerState, i64),
}

const fn fixed(name: &'static str, value: fn(&ServerState) -> String) -> Definition {
    Definition { name, value, set: None }
}

static DEFINITIONS: &[Definition] = &[
    // There are no snapshots to configure: replicas fsync every put.
    fixed("save", |_| String::new()),
    fixed("appendonly", |_| "no".into()),
    fixed("databases", |server| server.keyspaces.databases().to_string()),
    fixed("maxclients", |server| server.connections_max.to_string()),
    fixed("maxmemory", |_| "0".into()),
    fixed("maxmemory-policy", |_| "noeviction".into()),
    fixed("maxmemory-clients", |server| server.memory.short_bytes_max().to_string()),
    fixed("io-threads", |server| server.threads.len().to_string()),
    fixed("port", |server| server.port.to_string()),
    fixed("tls-port", |server| server.tls.as_ref().map_or(0, |(port, _)| *port).to_string()),
    fixed("protected-mode", |server| if server.is_protected { "yes" } else { "no" }.into()),
    fixed("proto-max-bulk-len", |_| ARGUMENT_BYTES_MAX.to_string()),
    fixed("timeout", |_| "0".into()),
    fixed("cluster-enabled", |_| "no".into()),
    fixed("notify-keyspace-events", |_| String::new()),
    fixed("latency-monitor-threshold", |_| "0".into()),
    fixed("hash-max-listpack-entries", |_| "512".into()),
    fixed("hash-max-listpack-value", |_| "64".into()),
    Definition {
        name: "slowlog-log-slower-than",
        value: |server| server.settings.slow_us().to_string(),
        set: Some(Set { least: -1, apply: |server, number| server.settings.set_slow_us(number) }),
    },
    Definition {
        name: "slowlog-max-len",
        value: |server| server.settings.slow_kept().to_string(),
        set: Some(Set { least: 0, apply: |server, number| server.settings.set_slow_kept(number as u64) }),
    },
];

/// All parameters with their values.
pub(crate) fn all(server: &ServerState) -> Vec<Parameter> {
    let parameter = |definition: &Definition| Parameter {
        name: definition.name,
        value: (definition.value)(server),
        least: definition.set.map(|set| set.least),
    };
    DEFINITIONS.iter().map(parameter).collect()
}

pub(crate) fn set(server: &ServerState, name: &str, number: i64) {
    let definition = DEFINITIONS.iter().find(|definition| definition.name == name);
    if let Some(set) = definition.and_then(|definition| definition.set) {
        (set.apply)(server, number);
    }
}

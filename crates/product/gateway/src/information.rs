//! The sections of INFO.

use crate::command_statistics::{Count, Totals};
use crate::keyspaces::Stored;
use crate::process;
use crate::shared::ServerState;
use nicekv_redis::table::COMMANDS;
use nicekv_redis::{REDIS_VERSION, command::Command};

type Fields = Vec<(String, String)>;

/// The sources of the fields of an INFO section.
struct Asked<'a> {
    server: &'a ServerState,
    unix_ms: u64,
}

impl Asked<'_> {
    /// Counts since the process began, or since CONFIG RESETSTAT.
    fn totals(&self) -> Totals {
        self.server.totals().since(&self.server.reset())
    }
}

/// The fields of a section; empty if there is nothing to show.
pub(crate) fn section(name: &str, server: &ServerState, unix_ms: u64) -> Fields {
    let asked = &Asked { server, unix_ms };
    match name {
        "Server" => self::server(asked),
        "Clients" => clients(asked),
        "Memory" => memory(asked),
        "Persistence" => persistence(),
        "Stats" => stats(asked),
        "Replication" => replication(),
        "CPU" => processor(),
        "Commandstats" => commands(asked),
        "Errorstats" => errors(asked),
        "Latencystats" => latencies(asked),
        "Cluster" => cluster(),
        "Keyspace" => keyspaces(asked),
        _ => Fields::new(),
    }
}

fn fields<const N: usize>(fields: [(&str, String); N]) -> Fields {
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

fn server(asked: &Asked<'_>) -> Fields {
    let state = asked.server;
    let uptime_s = asked.unix_ms.saturating_sub(state.started_unix_ms) / 1_000;
    let system = rustix::system::uname();
    let word = |word: &std::ffi::CStr| word.to_string_lossy().into_owned();
    let os = [system.sysname(), system.release(), system.machine()].map(word).join(" ");
    fields([
        ("redis_version", REDIS_VERSION.into()),
        ("nicekv_version", env!("CARGO_PKG_VERSION").into()),
        ("redis_mode", "standalone".into()),
        ("os", os),
        ("arch_bits", usize::BITS.to_string()),
        ("multiplexing_api", "epoll".into()),
        ("gateway_threads", state.threads.len().to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", state.port.to_string()),
        ("server_time_usec", (asked.unix_ms * 1_000).to_string()),
        ("uptime_in_seconds", uptime_s.to_string()),
        ("uptime_in_days", (uptime_s / 86_400).to_string()),
        ("config_file", String::new()),
    ])
}

fn clients(asked: &Asked<'_>) -> Fields {
    fields([
        ("connected_clients", asked.server.connections().to_string()),
        ("maxclients", asked.server.connections_max.to_string()),
        // The gateway has no blocking commands and no client-side caching.
        ("blocked_clients", "0".into()),
        ("tracking_clients", "0".into()),
    ])
}

fn memory(asked: &Asked<'_>) -> Fields {
    let state = asked.server;
    let mut all = Fields::new();
    if let Some(memory) = process::Memory::read() {
        let ratio = memory.resident as f64 / memory.own.max(1) as f64;
        all.extend(fields([
            ("used_memory", memory.own.to_string()),
            ("used_memory_human", human(memory.own)),
            ("used_memory_rss", memory.resident.to_string()),
            ("used_memory_rss_human", human(memory.resident)),
            ("used_memory_peak", memory.peak.to_string()),
            ("used_memory_peak_human", human(memory.peak)),
            ("mem_fragmentation_ratio", format!("{ratio:.2}")),
        ]));
    }
    if let Some(bytes) = process::machine_bytes() {
        all.extend(fields([
            ("total_system_memory", bytes.to_string()),
            ("total_system_memory_human", human(bytes)),
        ]));
    }
    all.extend(fields([
        ("maxmemory", "0".into()),
        ("maxmemory_human", "0B".into()),
        ("maxmemory_policy", "noeviction".into()),
        ("mem_clients_normal", state.memory.short_bytes().to_string()),
        ("maxmemory_clients", state.memory.short_bytes_max().to_string()),
        ("large_values_bytes", state.memory.large_bytes().to_string()),
        ("large_values_bytes_max", state.memory.large_bytes_max().to_string()),
        ("large_values_waiting", state.memory.queued().to_string()),
    ]));
    all
}

/// A number of bytes with a unit, formatted as in Redis.
fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    match power {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1_u64 << (10 * power)) as f64, units[power as usize]),
    }
}

/// The gateway itself loads and saves nothing; nodes fsync every put.
fn persistence() -> Fields {
    let none = |field| (field, "0".to_owned());
    fields([
        none("loading"),
        none("async_loading"),
        none("rdb_bgsave_in_progress"),
        none("aof_enabled"),
        none("aof_rewrite_in_progress"),
    ])
}

fn stats(asked: &Asked<'_>) -> Fields {
    let numbers =
        asked.totals().numbers.into_iter().map(|(name, count)| (name.to_owned(), count.to_string()));
    let in_flight = asked.server.sum(|thread| &thread.in_flight).to_string();
    numbers.chain([("store_requests_in_flight".to_owned(), in_flight)]).collect()
}

fn replication() -> Fields {
    fields([("role", "master".into()), ("connected_slaves", "0".into())])
}

fn processor() -> Fields {
    let Some((kernel_s, user_s)) = process::processor_s() else { return Fields::new() };
    fields([("used_cpu_sys", format!("{kernel_s:.6}")), ("used_cpu_user", format!("{user_s:.6}"))])
}

fn cluster() -> Fields {
    fields([("cluster_enabled", "0".into())])
}

/// Keyspaces that have keys; as in Redis, empty ones are not listed.
fn keyspaces(asked: &Asked<'_>) -> Fields {
    let field = |stored: Stored| {
        let Stored { keyspace, keys, expiring, expiry_ms } = stored;
        let ttl_ms = if expiring > 0 { expiry_ms.saturating_sub(asked.unix_ms) } else { 0 };
        (format!("db{}", keyspace.0), format!("keys={keys},expires={expiring},avg_ttl={ttl_ms}"))
    };
    asked.server.keyspaces.stored().into_iter().filter(|stored| stored.keys > 0).map(field).collect()
}

fn errors(asked: &Asked<'_>) -> Fields {
    let field = |(code, count): (String, u64)| (format!("errorstat_{code}"), format!("count={count}"));
    asked.totals().errors.into_iter().map(field).collect()
}

fn commands(asked: &Asked<'_>) -> Fields {
    let totals = asked.totals();
    let all = COMMANDS.iter().zip(&totals.commands);
    let called = all.filter(|(_, count)| count.calls() + count.rejected > 0);
    let field = |(command, count): (&Command, &Count)| {
        let (calls, took_us) = (count.calls(), count.took_us());
        let each_us = took_us as f64 / calls.max(1) as f64;
        let text = format!(
            "calls={calls},usec={took_us},usec_per_call={each_us:.2},rejected_calls={},failed_calls={}",
            count.rejected, count.failed
        );
        (format!("cmdstat_{}", command.name), text)
    };
    called.map(field).collect()
}

fn latencies(asked: &Asked<'_>) -> Fields {
    let totals = asked.totals();
    let all = COMMANDS.iter().zip(&totals.commands);
    let called = all.filter(|(_, count)| count.calls() > 0);
    let field = |(command, count): (&Command, &Count)| {
        let [p50, p99, p999] = [500, 990, 999].map(|share| count.quantile_us(share));
        (
            format!("latency_percentiles_usec_{}", command.name),
            format!("p50={p50:.3},p99={p99:.3},p99.9={p999:.3}"),
        )
    };
    called.map(field).collect()
}

impl ServerState {
    /// CONFIG RESETSTAT: later totals count from now.
    pub(crate) fn reset_totals(&self) {
        let totals = self.totals();
        *self.reset() = totals;
    }

    /// Counts since the process began.
    fn totals(&self) -> Totals {
        let [wrong_passwords, denied_commands, denied_keys, denied_channels] = self.users.denied();
        let mut totals = Totals::default();
        self.threads.iter().for_each(|thread| thread.statistics.read(&mut totals));
        let errors = totals.errors.values().sum();
        totals.numbers.extend([
            ("total_connections_received", self.connections_total.get()),
            ("rejected_connections", self.connections_refused.get()),
            ("denied_connections", self.connections_denied.get()),
            ("evicted_clients", self.sum(|thread| &thread.connections_evicted)),
            ("client_output_buffer_limit_disconnections", self.sum(|thread| &thread.subscribers_dropped)),
            ("stalled_clients", self.sum(|thread| &thread.connections_stalled)),
            ("total_commands_processed", self.sum(|thread| &thread.commands)),
            ("total_error_replies", errors),
            ("acl_access_denied_auth", wrong_passwords),
            ("acl_access_denied_cmd", denied_commands),
            ("acl_access_denied_key", denied_keys),
            ("acl_access_denied_channel", denied_channels),
            ("store_requests", self.sum(|thread| &thread.submitted)),
            ("store_retries", self.sum(|thread| &thread.retries)),
            ("store_busy", self.sum(|thread| &thread.busy)),
        ]);
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn lengths_are_formatted_as_in_redis() {
        let texts = [0, 1_023, 1_024, 1_536, 1 << 20, 5 << 30].map(human);
        assert_eq!(texts, ["0B", "1023B", "1.00K", "1.50K", "1.00M", "5.00G"]);
    }
}

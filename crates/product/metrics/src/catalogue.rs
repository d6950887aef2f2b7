//! Every metric: name, type, labels and help. A name ends with its unit; counters also get the
//! suffix `_total`. The list in `docs/METRICS.md` is generated from this. Metrics of the cluster's
//! status take their help from the catalogue of fields, which `status` and `top` also use.

use nicekv_fields::{balancing, hot, keyspace, table};

/// The role that exports a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Every process.
    Process,
    Node,
    /// The storage target of a node; it runs if there are keyspaces of objects.
    Target,
    Switch,
    Metadata,
    Gateway,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process runs.
    Counter,
    Gauge,
    /// Its values are durations.
    Histogram,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name, without the suffix `_total`.
    pub name: &'static str,
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    pub help: &'static str,
    pub owner: Owner,
}

impl Metric {
    /// The name in PromQL queries.
    pub fn full_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }

    /// The unit: seconds, bytes, or 1 for a plain number.
    pub fn unit(&self) -> &'static str {
        let ends_with = |unit: &&&str| self.name.rsplit('_').next() == Some(**unit);
        ["seconds", "bytes"].iter().find(ends_with).copied().unwrap_or("1")
    }
}

macro_rules! catalogue {
    ($($owner:ident { $($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:expr;)* })*) => {
        $($(
            pub static $id: Metric = Metric {
                name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help, owner: Owner::$owner,
            };
        )*)*

        /// Every metric.
        pub static ALL: &[&Metric] = &[$($(&$id),*),*];
    };
}

catalogue! {
    Process {
        BUILD: Gauge "nicekv_build_info" ["version"] "Always 1; the label is the release";
        ANSWERING: Gauge "nicekv_role_answering" ["role", "name"] "1 if the role answered in time; 0 while it starts or is stuck";
        SCRAPES: Counter "nicekv_metrics_pages" [] "Metrics pages generated";
        CPU: Counter "process_cpu_seconds" [] "User and system CPU time spent";
        RESIDENT: Gauge "process_resident_memory_bytes" [] "Resident memory";
        DESCRIPTORS: Gauge "process_open_fds" [] "Open file descriptors";
        STARTED: Gauge "process_start_time_seconds" [] "Start time of the process since the Unix epoch";
    }
    Node {
        NODE_TERM: Gauge "nicekv_node_term" ["node"] "Highest metadata term that the node has seen";
        NODE_PARTITIONS: Gauge "nicekv_node_partitions" ["node", "standing"] "Partitions by the node's standing in them: outside, joining, handoff, consistent";
        NODE_LEADS: Gauge "nicekv_node_partitions_led" ["node"] "Partitions that the node leads as a recovered primary";
        NODE_OPEN: Gauge "nicekv_node_open_operations" ["node"] "Prepared operations without a decision yet";
        NODE_GETS: Counter "nicekv_node_gets" ["node"] "Gets answered by the node";
        NODE_KERNEL_GETS: Counter "nicekv_node_kernel_gets" ["node", "outcome"] "Gets that reached the node's kernel program: hit (answered there), or why they were passed to the process";
        NODE_KERNEL_ENTRIES: Gauge "nicekv_node_kernel_entries" ["node"] "Keys whose gets the kernel may answer";
        NODE_KERNEL_CLOSES: Counter "nicekv_node_kernel_closes" ["node"] "Kernel entries closed because the key changed or its partition moved";
        NODE_FORWARDED: Counter "nicekv_node_gets_forwarded" ["node"] "Gets forwarded to the primary";
        NODE_HOT_GETS: Counter "nicekv_node_hot_gets" ["node", "outcome"] "Gets of other nodes' hot keys: answered (from a copy), passed (to the owner), unknown (no copy; the client retries)";
        NODE_HOT_COPIES: Counter "nicekv_node_hot_copies_sent" ["node"] "Copies of the node's hot keys sent to other nodes";
        NODE_HOT_VALUES: Counter "nicekv_node_hot_values_sent" ["node"] "Copies of the node's hot keys sent to a switch";
        NODE_HOT_WAITS: Counter "nicekv_node_hot_waits" ["node"] "Operations delayed until no get could be answered from an older copy";
        NODE_HOT_REVOCATIONS: Counter "nicekv_node_hot_revocations" ["node"] "Times the node revoked all its copies because a switch did not answer or its permission to lend them ended";
        NODE_LARGE_VALUES: Counter "nicekv_node_large_values" ["node", "event"] "Large values: client transfers begun, refused, abandoned or wrong (not the announced value); values fetched from members, damaged on disk, removed (unreferenced)";
        NODE_CHUNKS: Counter "nicekv_node_chunks" ["node", "event"] "Chunks of large values: received, known (already stored), refused, sent to clients; unproven: reads without a valid token";
        NODE_DECIDED: Counter "nicekv_node_decisions" ["node", "path"] "Operations decided as primary: fast (uncontended), slow (every member syncs the decision first)";
        NODE_PUBLISHED: Counter "nicekv_node_messages_published" ["node"] "Pub/sub messages published as primary";
        NODE_MESSAGES_SENT: Counter "nicekv_node_messages_sent" ["node"] "Datagrams sent to pub/sub subscribers";
        NODE_LISTENERS_REFUSED: Counter "nicekv_node_listeners_refused" ["node"] "Pub/sub subscribers refused because there are too many";
        NODE_MALFORMED: Counter "nicekv_node_malformed" ["node"] "Malformed datagrams received";
        NODE_OTHER_VERSION: Counter "nicekv_node_other_version" ["node"] "Malformed datagrams that are of another wire version: a sender runs another release; the log names it";
        NODE_REFUSED: Counter "nicekv_node_refused" ["node"] "Messages refused: of another epoch or term, or not from a member";
        NODE_DROPPED: Counter "nicekv_node_dropped" ["node"] "Requests dropped because the node may not serve them now, or a bound was reached";
        NODE_RESENT: Counter "nicekv_node_resent" ["node"] "Prepares resent to members that had not acknowledged them";
        NODE_ASSEMBLED: Counter "nicekv_node_assembled" ["node"] "Messages reassembled from fragments";
        NODE_NO_SPACE: Counter "nicekv_node_refused_for_space" ["node"] "Prepares refused because the disk is full";
        NODE_BARRED: Counter "nicekv_node_ops_ended" ["node"] "Requests that crashed the node twice and are now answered with an error; the log names them";
        NODE_CORRUPT: Counter "nicekv_node_corrupt_values" ["node"] "Values found damaged";
        NODE_REPAIRED: Counter "nicekv_node_repaired_values" ["node"] "Damaged values repaired from another member or by a new write";
        NODE_DIFFERING: Counter "nicekv_node_differing_values" ["node"] "Entries that differed from most members and were corrected";
        NODE_FORGOTTEN: Counter "nicekv_node_forgotten_deletions" ["node"] "Deletions in quorum keyspaces forgotten because every replica has them";
        NODE_SCRUBBED: Counter "nicekv_node_scrubbed_entries" ["node"] "Entries verified by the scrub";
        NODE_SCRUBS: Counter "nicekv_node_scrubs" ["node"] "Completed scrub passes";
        NODE_SCRUBBED_LARGE: Counter "nicekv_node_scrubbed_large_value_bytes" ["node"] "Bytes of large values verified by the scrub";
        NODE_LARGE_SCRUBS: Counter "nicekv_node_large_value_scrubs" ["node"] "Completed scrub passes over large values";
        NODE_DISCARDED: Counter "nicekv_node_discarded_partitions" ["node"] "Partitions whose data was discarded because the node no longer needs it";
        NODE_PUTS: Histogram "nicekv_node_put_stage_duration_seconds" ["node", "stage"] "Time since a put arrived: synced (on this node's disk; every member), decided (synced by every member and decided; the primary)";
        NODE_LOG_SYNCS: Histogram "nicekv_node_log_sync_duration_seconds" ["node"] "Duration of a log sync; none with the memory engine";
        NODE_RECORDS: Counter "nicekv_node_log_records" ["node"] "Log records ever written, including earlier processes";
        NODE_SEGMENTS: Gauge "nicekv_node_log_segments" ["node"] "Log segments kept";
        NODE_DATAGRAMS: Counter "nicekv_node_datagrams" ["node", "outcome"] "Datagrams of the node's socket: received, sent, lost (refused by the kernel), too_long (dropped)";
    }
    Target {
        TARGET_CHUNKS: Gauge "nicekv_target_chunks" ["node"] "Chunks stored";
        TARGET_BYTES: Gauge "nicekv_target_chunk_bytes" ["node"] "Bytes of stored chunks";
        TARGET_LACKING: Gauge "nicekv_target_chunks_lacking_copies" ["node"] "Chunks with too few copies that this target has to copy again";
        TARGET_UNSETTLED: Gauge "nicekv_target_chunks_unsettled" ["node"] "Chunks whose number of copies is not confirmed yet";
        TARGET_MOVING: Gauge "nicekv_target_moving" ["node"] "1 while chunks are copied to other groups";
        TARGET_MAP: Gauge "nicekv_target_map_version" ["node"] "Version of the group map in use; 0: none, the target answers nothing";
        TARGET_ROUND: Gauge "nicekv_target_round" ["node", "stage"] "Rounds of garbage collection: known (newest announced), listed (all names listed), swept (unreferenced chunks deleted)";
        TARGET_FREE: Gauge "nicekv_target_disk_free_bytes" ["node"] "Free disk space, including promised space";
        TARGET_PROMISED: Gauge "nicekv_target_disk_promised_bytes" ["node"] "Disk space promised to chunks with an open bid or under way";
        TARGET_MEMORY: Gauge "nicekv_target_memory_promised_bytes" ["node"] "Memory promised to chunks, or held by chunks that are not on disk yet";
        TARGET_MEMORY_MAX: Gauge "nicekv_target_memory_max_bytes" ["node"] "Upper bound of that memory";
        TARGET_UNDER_WAY: Gauge "nicekv_target_under_way" ["node", "kind"] "Open bids (bid), incoming chunks (transfer), reads waiting for the disk (read)";
        TARGET_PUTS: Counter "nicekv_target_put_answers" ["node", "answer"] "Replies to put requests: bid, stored (already here), arriving (already under way), not_now (no time or memory), no_space (disk full)";
        TARGET_BIDS: Counter "nicekv_target_bids" ["node", "outcome"] "Ended bids: accepted, cancelled (others were chosen, or groups changed), lapsed (no reply in time)";
        TARGET_TRANSFERS: Counter "nicekv_target_transfers" ["node", "outcome"] "Ended transfers: stored, lapsed (did not arrive), wrong (content does not match the id), disk_full, given_up (groups changed)";
        TARGET_FRAMES: Counter "nicekv_target_frames" ["node", "event"] "Chunk frames: received, known (duplicates among them), missing (requested again), refused (expected by no transfer), sent to readers";
        TARGET_GETS: Counter "nicekv_target_get_answers" ["node", "answer"] "Replies to chunk lookups: held, not_found";
        TARGET_READS: Counter "nicekv_target_reads" ["node", "outcome"] "Reads of parts of chunks: served, dropped (too many waiting), unproven (no valid token), refused (no such frames)";
        TARGET_READ_BYTES: Counter "nicekv_target_read_bytes" ["node"] "Bytes of chunks sent to readers";
        TARGET_SCRUBBED: Counter "nicekv_target_scrubbed_chunks" ["node"] "Chunks verified by the scrub";
        TARGET_DAMAGED: Counter "nicekv_target_damaged_chunks" ["node"] "Damaged chunks found and dropped; other targets copy them again";
        TARGET_COPIED: Counter "nicekv_target_chunks_put_again" ["node"] "Chunks copied to other targets: too few copies, or they belong to another group now";
        TARGET_DELETED: Counter "nicekv_target_deleted_chunks" ["node", "reason"] "Copies deleted: garbage (no object references the chunk), surplus (enough other targets hold it)";
        TARGET_OTHER_MAP: Counter "nicekv_target_other_map" ["node"] "Messages from senders with another group map; each gets a reply that says so";
        TARGET_REFUSED: Counter "nicekv_target_refused" ["node"] "Messages refused: chunks of another group, or not from the negotiation's initiator";
        TARGET_MALFORMED: Counter "nicekv_target_malformed" ["node"] "Malformed datagrams received";
        TARGET_DATAGRAMS: Counter "nicekv_target_datagrams" ["node", "outcome"] "Datagrams of the target's socket: received, sent, lost (refused by the kernel), too_long (dropped)";
    }
    Switch {
        SWITCH_CONNECTED: Gauge "nicekv_switch_connected" ["switch"] "1 if connected to the metadata service";
        SWITCH_TERM: Gauge "nicekv_switch_term" ["switch"] "Newest metadata term obeyed";
        SWITCH_GENERATION: Gauge "nicekv_switch_generation" ["switch"] "Generation of its tables; 0: none";
        SWITCH_OTHER_VERSION: Counter "nicekv_switch_other_version" ["switch"] "Connections closed by a metadata instance with another version of the control protocol";
        SWITCH_ENTRIES: Gauge "nicekv_switch_table_entries" ["switch", "table"] table::ENTRIES.help;
        SWITCH_CAPACITY: Gauge "nicekv_switch_table_capacity" ["switch", "table"] table::CAPACITY.help;
        SWITCH_HITS: Counter "nicekv_switch_table_hits" ["switch", "table"] table::HITS.help;
        SWITCH_PACKETS: Counter "nicekv_switch_packets" ["switch", "event"] "Packets dropped (malformed, vring_miss, vring_refused, not_ours, source_refused, opcode_refused, egress_dropped, same_port_dropped), copied (multicast_copies), sent along a chain (chained); scans cut at record borders (scan_splits); hot keys: redirected to copies (hot_redirected), answered by the switch (hot_answered), control messages (hot_confirmed, hot_closed, hot_kept, hot_leased, hot_unheard); plain Ethernet (learned_forwarded, flooded)";
    }
    Metadata {
        METADATA_TERM: Gauge "nicekv_metadata_term" [] "Term of the leader";
        METADATA_LEADS: Gauge "nicekv_metadata_leads" [] "1 if this instance leads; only the leader reports on the cluster";
        METADATA_STORE_SILENT: Gauge "nicekv_metadata_store_silent_seconds" [] "Time since the shared state store last answered this instance";
        METADATA_READY: Gauge "nicekv_metadata_ready" [] "1 if every partition has all its replicas and every switch table is acknowledged";
        METADATA_NODES: Gauge "nicekv_metadata_nodes" ["state"] "Nodes by state: live, suspected, unknown";
        METADATA_SWITCHES: Gauge "nicekv_metadata_switches" ["state"] "Switches by state: current (newest tables), behind, disconnected";
        METADATA_PARTITIONS: Gauge "nicekv_metadata_partitions" ["keyspace", "health"] "Partitions by health: whole, covered (by handoffs), reduced (fewer than R copies), waiting (no puts), unavailable, lost";
        METADATA_MOVES: Gauge "nicekv_metadata_moves" [] "Replicas that still have to move";
        METADATA_RESHAPINGS: Gauge "nicekv_metadata_reshapings" ["phase"] "Partition splits and merges by phase: waiting, forming (members build the children), sealed (the parents take no operations), succeeding (the children are not whole yet)";
        METADATA_BALANCING_STEPS: Counter "nicekv_metadata_balancing_steps" ["keyspace", "step"] "Steps begun by balancing=migrate since this instance leads: move, split, merge (pairs)";
        METADATA_BALANCING_LOAD: Gauge "nicekv_metadata_balancing_most_loaded_percent" ["keyspace"] "Load of the most loaded node in the last period, in percent of the mean";
        METADATA_HOT_KEYS: Gauge "nicekv_metadata_hot_keys" ["keyspace"] balancing::HOT_KEYS.help;
        METADATA_HOT_ENTRIES: Gauge "nicekv_metadata_hot_entries" ["switch"] hot::ENTRIES.help;
        METADATA_HOT_COPIED: Gauge "nicekv_metadata_hot_copied_keys" ["switch"] hot::COPIED.help;
        METADATA_HOT_COPIES: Gauge "nicekv_metadata_hot_copies" ["switch"] hot::COPIES.help;
        METADATA_HOT_VALUES: Gauge "nicekv_metadata_hot_values" ["switch"] hot::VALUES.help;
        METADATA_HOT_THRESHOLD: Gauge "nicekv_metadata_hot_threshold_per_second" ["switch"] hot::THRESHOLD.help;
        METADATA_HOT_IMBALANCE: Gauge "nicekv_metadata_hot_imbalance_percent" ["switch"] hot::IMBALANCE.help;
        METADATA_HOT_SHARE: Gauge "nicekv_metadata_hot_requests_percent" ["switch"] hot::SHARE.help;
        METADATA_HOT_ANSWERED: Gauge "nicekv_metadata_hot_answered_percent" ["switch"] hot::ANSWERED.help;
        METADATA_HOT_CHANGES: Counter "nicekv_metadata_hot_changes" ["switch"] hot::CHANGES.help;
        METADATA_HOT_REFUSED: Counter "nicekv_metadata_hot_refused" ["switch"] hot::REFUSED.help;
        METADATA_HOT_FAILING: Gauge "nicekv_metadata_hot_failing" ["switch"] "1 if the switch failed its last hot key request; `nicekv status` says why";
        METADATA_KEYS: Gauge "nicekv_metadata_keys" ["keyspace"] keyspace::KEYS.help;
        METADATA_BYTES: Gauge "nicekv_metadata_stored_bytes" ["keyspace"] keyspace::BYTES.help;
        METADATA_GETS: Gauge "nicekv_metadata_gets_per_second" ["keyspace"] keyspace::GETS.help;
        METADATA_UPDATES: Gauge "nicekv_metadata_updates_per_second" ["keyspace"] keyspace::UPDATES.help;
        METADATA_IGNORED: Counter "nicekv_metadata_ignored" ["reason"] "Messages ignored: malformed, foreign (another cluster), forged (wrong sender), stale; transmits_dropped: datagrams not sent";
        METADATA_OTHER_VERSION: Counter "nicekv_metadata_other_version" [] "Datagrams and streams of another wire or control protocol version: a sender runs another release; `nicekv status` names it";
        METADATA_PERSISTS: Histogram "nicekv_metadata_persist_duration_seconds" [] "Time to persist a step of the state";
        METADATA_DATAGRAMS: Counter "nicekv_metadata_datagrams" ["outcome"] "Datagrams of its socket: received, sent, lost (refused by the kernel), too_long (dropped)";
    }
    Gateway {
        GATEWAY_THREADS: Gauge "nicekv_gateway_threads" ["gateway"] "Threads that serve connections";
        GATEWAY_CONNECTIONS: Gauge "nicekv_gateway_connections" ["gateway"] "Open connections";
        GATEWAY_CONNECTIONS_MAX: Gauge "nicekv_gateway_connections_max" ["gateway"] "Connection limit";
        GATEWAY_ACCEPTED: Counter "nicekv_gateway_connections_accepted" ["gateway"] "Connections accepted";
        GATEWAY_REFUSED: Counter "nicekv_gateway_connections_refused" ["gateway"] "Connections refused at the limit";
        GATEWAY_EVICTED: Counter "nicekv_gateway_connections_evicted" ["gateway"] "Connections closed because all together held too much memory";
        GATEWAY_PROTECTED: Counter "nicekv_gateway_connections_denied" ["gateway"] "Connections from other hosts refused by protected mode, while no password is set";
        GATEWAY_HANDSHAKES: Counter "nicekv_gateway_tls_handshakes" ["gateway", "outcome"] "TLS handshakes: done, failed, timed_out, displaced (too many at once)";
        GATEWAY_HANDSHAKES_OPEN: Gauge "nicekv_gateway_tls_handshakes_open" ["gateway"] "TLS handshakes under way";
        GATEWAY_DENIED: Counter "nicekv_gateway_access_denied" ["gateway", "reason"] "Access denied to users: auth (failed logins), command, key, channel";
        GATEWAY_MEMORY: Gauge "nicekv_gateway_connection_memory_bytes" ["gateway"] "Memory held by commands and replies of connections, without large values";
        GATEWAY_MEMORY_MAX: Gauge "nicekv_gateway_connection_memory_max_bytes" ["gateway"] "Upper bound of that memory";
        GATEWAY_LARGE: Gauge "nicekv_gateway_large_value_bytes" ["gateway"] "Memory held by or granted to large arguments and values";
        GATEWAY_LARGE_MAX: Gauge "nicekv_gateway_large_value_max_bytes" ["gateway"] "Upper bound of that memory";
        GATEWAY_LARGE_WAITING: Gauge "nicekv_gateway_large_values_waiting" ["gateway"] "Arguments and replies waiting for memory for large values";
        GATEWAY_STALLED: Counter "nicekv_gateway_connections_stalled" ["gateway"] "Connections closed because they neither sent nor read while others waited for memory";
        GATEWAY_COMMANDS: Counter "nicekv_gateway_commands" ["gateway"] "Commands received";
        GATEWAY_REQUESTS: Counter "nicekv_gateway_requests" ["gateway"] "Requests sent to the store";
        GATEWAY_IN_FLIGHT: Gauge "nicekv_gateway_requests_in_flight" ["gateway"] "Requests without a reply yet";
        GATEWAY_FAILED: Counter "nicekv_gateway_request_failures" ["gateway", "reason"] "Failed requests: outcome_unknown, timed_out, busy, disk_full, refused (not supported by the keyspace)";
        GATEWAY_RETRIES: Counter "nicekv_gateway_retries" ["gateway"] "Datagrams resent because no reply came in time";
        GATEWAY_BUSY: Counter "nicekv_gateway_busy_answers" ["gateway"] "Busy replies from nodes at a bound";
        GATEWAY_OTHER_VERSION: Counter "nicekv_gateway_other_version" ["gateway"] "Replies of another wire version: a sender runs another release; the log names it";
        GATEWAY_LATENCY: Histogram "nicekv_gateway_request_duration_seconds" ["gateway", "command"] "Time from issuing a command's request to its reply or failure, by command; commands with several keys have a request for each";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_prometheus_conventions() {
        let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(is_name(metric.name) && metric.labels.iter().all(|label| is_name(label)), "{metric:?}");
            assert!(!metric.name.ends_with("_total") && !metric.help.ends_with('.'), "{metric:?}");
            assert_eq!(
                metric.kind == Kind::Histogram,
                metric.name.ends_with("_duration_seconds"),
                "{metric:?}"
            );
            let owner = match metric.owner {
                Owner::Process => continue,
                Owner::Node => "node",
                Owner::Target => "target",
                Owner::Switch => "switch",
                Owner::Metadata => "metadata",
                Owner::Gateway => "gateway",
            };
            assert!(metric.name.starts_with(&format!("nicekv_{owner}_")), "{metric:?}");
            // A target is labelled with the name of its node.
            let label = if metric.owner == Owner::Target { "node" } else { owner };
            assert!(metric.owner == Owner::Metadata || metric.labels[0] == label, "{metric:?}");
        }
    }
}

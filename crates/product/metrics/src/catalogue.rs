//! Every metric: its name (with the unit last; counters get `_total` behind it), its type, its labels, and what it says. `docs/METRICS.md` is
//! made of this.

/// Who has a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Every process.
    Process,
    /// A storage node.
    Node,
    /// The storage target of a node, where there are groups of targets.
    Target,
    /// A switch, or the agent of one.
    Switch,
    /// The metadata service.
    Metadata,
    /// A gateway.
    Gateway,
}

/// What a metric's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of the process on.
    Counter,
    /// It is what it is now.
    Gauge,
    /// Durations, in buckets.
    Histogram,
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// What its number is.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// Who has it.
    pub owner: Owner,
}

impl Metric {
    /// The name that queries use.
    pub fn full_name(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }

    /// What it is counted in.
    pub fn unit(&self) -> &'static str {
        let ends_with = |unit: &&&str| self.name.rsplit('_').next() == Some(**unit);
        ["seconds", "bytes"].iter().find(ends_with).copied().unwrap_or("1")
    }
}

macro_rules! catalogue {
    ($($owner:ident { $($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal)* })*) => {
        $($(
            #[doc = $help]
            pub static $id: Metric = Metric {
                name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help, owner: Owner::$owner,
            };
        )*)*

        /// All of them.
        pub static ALL: &[&Metric] = &[$($(&$id),*),*];
    };
}

catalogue! {
    Process {
        BUILD: Gauge "nicekv_build_info" ["version"] "1; which release this is"
        ANSWERING: Gauge "nicekv_role_answering" ["role", "name"] "Whether the role has answered in time: 0 while it starts, or when it is stuck"
        SCRAPES: Counter "nicekv_metrics_pages" [] "Pages of metrics that were made"
        CPU: Counter "process_cpu_seconds" [] "User and system CPU time spent"
        RESIDENT: Gauge "process_resident_memory_bytes" [] "Resident memory"
        DESCRIPTORS: Gauge "process_open_fds" [] "Open file descriptors"
        STARTED: Gauge "process_start_time_seconds" [] "When the process started, since the Unix epoch"
    }
    Node {
        NODE_TERM: Gauge "nicekv_node_term" ["node"] "Highest term of a metadata leader that it has seen"
        NODE_PARTITIONS: Gauge "nicekv_node_partitions" ["node", "standing"] "Partitions that it has heard of, by its standing there: outside, joining, handoff, consistent"
        NODE_LEADS: Gauge "nicekv_node_partitions_led" ["node"] "Partitions of which it is the primary and has recovered"
        NODE_OPEN: Gauge "nicekv_node_open_operations" ["node"] "Operations that are prepared and have not taken effect"
        NODE_GETS: Counter "nicekv_node_gets" ["node"] "Gets answered here"
        NODE_KERNEL_GETS: Counter "nicekv_node_kernel_gets" ["node", "outcome"] "Gets that its kernel has looked at, if it answers any: hit (answered there), else why the process was left to answer"
        NODE_KERNEL_ENTRIES: Gauge "nicekv_node_kernel_entries" ["node"] "Keys whose gets its kernel may answer"
        NODE_KERNEL_CLOSES: Counter "nicekv_node_kernel_closes" ["node"] "Times that an entry of its kernel was closed, as its key changed or its partition moved"
        NODE_FORWARDED: Counter "nicekv_node_gets_forwarded" ["node"] "Gets passed to the primary"
        NODE_HOT_GETS: Counter "nicekv_node_hot_gets" ["node", "outcome"] "Gets of hot keys of others that a switch has sent here: answered (from a copy), passed (to the owner), unknown (there was no copy, and the client asks again)"
        NODE_HOT_COPIES: Counter "nicekv_node_hot_copies_sent" ["node"] "Copies of its own hot keys that it has sent to other nodes"
        NODE_HOT_VALUES: Counter "nicekv_node_hot_values_sent" ["node"] "Copies of its own hot keys that it has sent to a switch, to be shown there"
        NODE_HOT_WAITS: Counter "nicekv_node_hot_waits" ["node"] "Operations that waited until no get could be answered from an older copy"
        NODE_HOT_REVOCATIONS: Counter "nicekv_node_hot_revocations" ["node"] "Times that it has taken all its copies back, as a switch did not answer, or as it may not let others show them any more"
        NODE_LARGE_VALUES: Counter "nicekv_node_large_values" ["node", "event"] "Large values: transfers from clients (begun, refused, abandoned, wrong: not what their op had said), fetched from other members, damaged on the disk, and removed as nobody spoke of them any more"
        NODE_CHUNKS: Counter "nicekv_node_chunks" ["node", "event"] "Chunks of large values that came (received), were there already (known), were not to be taken (refused), or were sent to clients (sent); reads without the right token (unproven)"
        NODE_DECIDED: Counter "nicekv_node_decisions" ["node", "path"] "Operations decided here as primary: fast (uncontended) or slow (every member forces the decision first)"
        NODE_PUBLISHED: Counter "nicekv_node_messages_published" ["node"] "Messages to channels published here as primary"
        NODE_MESSAGES_SENT: Counter "nicekv_node_messages_sent" ["node"] "Datagrams sent to those that listen to these channels"
        NODE_LISTENERS_REFUSED: Counter "nicekv_node_listeners_refused" ["node"] "Clients that were not noted as listening to a channel, being too many"
        NODE_MALFORMED: Counter "nicekv_node_malformed" ["node"] "Datagrams that were no message of ours"
        NODE_OTHER_VERSION: Counter "nicekv_node_other_version" ["node"] "Of these, messages of another wire version: somebody is of another release; the log says who"
        NODE_REFUSED: Counter "nicekv_node_refused" ["node"] "Messages of another epoch or term, or from no member"
        NODE_DROPPED: Counter "nicekv_node_dropped" ["node"] "Requests dropped because it may not serve them now, or a bound was reached"
        NODE_RESENT: Counter "nicekv_node_resent" ["node"] "Prepares sent again to a member that had not acknowledged them"
        NODE_ASSEMBLED: Counter "nicekv_node_assembled" ["node"] "Messages that came in fragments, as they are longer than a datagram"
        NODE_NO_SPACE: Counter "nicekv_node_refused_for_space" ["node"] "Prepares refused because the disk is full"
        NODE_BARRED: Counter "nicekv_node_ops_ended" ["node"] "Requests that have crashed the node twice, and were answered with an error since; the log says which"
        NODE_CORRUPT: Counter "nicekv_node_corrupt_values" ["node"] "Values found damaged"
        NODE_REPAIRED: Counter "nicekv_node_repaired_values" ["node"] "Of the damaged values, those got back from another member or written anew"
        NODE_DIFFERING: Counter "nicekv_node_differing_values" ["node"] "Entries that differed from what most members have, and were put right"
        NODE_FORGOTTEN: Counter "nicekv_node_forgotten_deletions" ["node"] "Deletions of quorum keyspaces that were forgotten, as every replica had them"
        NODE_SCRUBBED: Counter "nicekv_node_scrubbed_entries" ["node"] "Entries verified by the scrub"
        NODE_SCRUBS: Counter "nicekv_node_scrubs" ["node"] "Finished passes of the scrub"
        NODE_SCRUBBED_LARGE: Counter "nicekv_node_scrubbed_large_value_bytes" ["node"] "Bytes of large values read through by their scrub"
        NODE_LARGE_SCRUBS: Counter "nicekv_node_large_value_scrubs" ["node"] "Finished passes of the scrub of large values"
        NODE_DISCARDED: Counter "nicekv_node_discarded_partitions" ["node"] "Partitions of which what was held here was discarded, as nobody needed it any more"
        NODE_PUTS: Histogram "nicekv_node_put_stage_duration_seconds" ["node", "stage"] "From taking a put in: forced, until it is on this node's disk (every member); decided, until it is on every member's and decided (the primary)"
        NODE_FORCES: Histogram "nicekv_node_log_force_duration_seconds" ["node"] "How long each force of the log took; none with the memory engine"
        NODE_RECORDS: Counter "nicekv_node_log_records" ["node"] "Records ever written to the log, by earlier processes, too"
        NODE_SEGMENTS: Gauge "nicekv_node_log_segments" ["node"] "Segments of the log that are kept"
        NODE_DATAGRAMS: Counter "nicekv_node_datagrams" ["node", "outcome"] "Datagrams at its socket: received, sent, lost (refused by the kernel), too_long (dropped)"
    }
    Target {
        TARGET_CHUNKS: Gauge "nicekv_target_chunks" ["node"] "Chunks that it holds"
        TARGET_BYTES: Gauge "nicekv_target_chunk_bytes" ["node"] "Their bytes"
        TARGET_LACKING: Gauge "nicekv_target_chunks_lacking_copies" ["node"] "Chunks that fewer targets hold than are wanted, and that this one is to put again"
        TARGET_UNSETTLED: Gauge "nicekv_target_chunks_unsettled" ["node"] "Chunks of which it is not known yet that enough targets hold them: one is silent, another one is to put them again, or they were not looked at"
        TARGET_MOVING: Gauge "nicekv_target_moving" ["node"] "Whether it holds chunks of which it is to put copies to other groups"
        TARGET_MAP: Gauge "nicekv_target_map_version" ["node"] "Version of the map of groups that it goes by; 0: none, and it answers nothing"
        TARGET_ROUND: Gauge "nicekv_target_round" ["node", "stage"] "Rounds of garbage collection: the newest that it was told (known), and the last of which all names were listed to it (listed), and in which it has deleted what no name needs (swept)"
        TARGET_FREE: Gauge "nicekv_target_disk_free_bytes" ["node"] "What its disk has room for, what is promised included"
        TARGET_PROMISED: Gauge "nicekv_target_disk_promised_bytes" ["node"] "Room on the disk that is promised to chunks that have a bid, or come"
        TARGET_MEMORY: Gauge "nicekv_target_memory_promised_bytes" ["node"] "Memory that is promised to such chunks, or has those that the disk does not have yet"
        TARGET_MEMORY_MAX: Gauge "nicekv_target_memory_max_bytes" ["node"] "What that may be at most"
        TARGET_UNDER_WAY: Gauge "nicekv_target_under_way" ["node", "kind"] "Bids that are open (bid), chunks that come (transfer), reads that wait for the disk (read)"
        TARGET_PUTS: Counter "nicekv_target_put_answers" ["node", "answer"] "What it has said to those who put a chunk: bid, stored (it is here already, and nothing is sent), arriving (it comes already), not_now (no time or memory), no_space (the disk has no room)"
        TARGET_BIDS: Counter "nicekv_target_bids" ["node", "outcome"] "Bids that have ended: accepted, cancelled (others were chosen, or groups have changed), lapsed (nobody has said anything in time)"
        TARGET_TRANSFERS: Counter "nicekv_target_transfers" ["node", "outcome"] "Transfers that have ended: stored, lapsed (they did not come), wrong (not what their id says), disk_full, given_up (groups have changed)"
        TARGET_FRAMES: Counter "nicekv_target_frames" ["node", "event"] "Frames of chunks that came (received), of these those that were here (known); those that were asked for again (missing), that no transfer expects (refused), and that were sent to readers (sent)"
        TARGET_GETS: Counter "nicekv_target_get_answers" ["node", "answer"] "What it has said to those who look for a chunk: held, not_found"
        TARGET_READS: Counter "nicekv_target_reads" ["node", "outcome"] "Reads of parts of chunks: served, dropped (too many waited), unproven (without the token of their address), refused (there are no such frames)"
        TARGET_READ_BYTES: Counter "nicekv_target_read_bytes" ["node"] "Bytes of chunks sent to readers"
        TARGET_SCRUBBED: Counter "nicekv_target_scrubbed_chunks" ["node"] "Chunks read through and found to be what they were"
        TARGET_DAMAGED: Counter "nicekv_target_damaged_chunks" ["node"] "Chunks found damaged, and dropped; others make the copy again"
        TARGET_COPIED: Counter "nicekv_target_chunks_put_again" ["node"] "Chunks that it has put to others, as too few held them, or as they belong to another group now"
        TARGET_DELETED: Counter "nicekv_target_deleted_chunks" ["node", "reason"] "Copies deleted: garbage (no name needs the chunk), surplus (enough others hold it)"
        TARGET_OTHER_MAP: Counter "nicekv_target_other_map" ["node"] "Messages of those who go by another map of groups, and were told so"
        TARGET_REFUSED: Counter "nicekv_target_refused" ["node"] "Messages for chunks that are not of its group, or by somebody else than a negotiation's initiator"
        TARGET_MALFORMED: Counter "nicekv_target_malformed" ["node"] "Datagrams that were no message to a target"
        TARGET_DATAGRAMS: Counter "nicekv_target_datagrams" ["node", "outcome"] "Datagrams at its socket: received, sent, lost (refused by the kernel), too_long (dropped)"
    }
    Switch {
        SWITCH_CONNECTED: Gauge "nicekv_switch_connected" ["switch"] "Whether it has a stream to the metadata service"
        SWITCH_TERM: Gauge "nicekv_switch_term" ["switch"] "Newest term of a metadata leader that it has obeyed"
        SWITCH_GENERATION: Gauge "nicekv_switch_generation" ["switch"] "Generation of its tables; 0: it has none"
        SWITCH_OTHER_VERSION: Counter "nicekv_switch_other_version" ["switch"] "Streams that an instance of the metadata service has closed since it speaks another version of the control protocol"
        SWITCH_ENTRIES: Gauge "nicekv_switch_table_entries" ["switch", "table"] "Entries in use"
        SWITCH_CAPACITY: Gauge "nicekv_switch_table_capacity" ["switch", "table"] "Entries that there may be"
        SWITCH_HITS: Counter "nicekv_switch_table_hits" ["switch", "table"] "Packets that matched an entry"
        SWITCH_PACKETS: Counter "nicekv_switch_packets" ["switch", "event"] "Packets dropped (malformed, vring_miss, vring_refused, not_ours, source_refused, opcode_refused, egress_dropped, same_port_dropped), copied (multicast_copies), sent along a chain (chained), cut off scans at borders of records (scan_splits), of hot keys sent to holders of copies (hot_redirected) or said to the switch (hot_confirmed, hot_closed, hot_kept, hot_leased, hot_unheard), answered by the switch itself (hot_answered), or passed on as plain Ethernet (learned_forwarded, flooded)"
    }
    Metadata {
        METADATA_TERM: Gauge "nicekv_metadata_term" [] "Term of this leader"
        METADATA_LEADS: Gauge "nicekv_metadata_leads" [] "Whether this instance leads; what is of the cluster is told by the leader only"
        METADATA_STORE_SILENT: Gauge "nicekv_metadata_store_silent_seconds" [] "For how long the store that instances share has not answered this one"
        METADATA_READY: Gauge "nicekv_metadata_ready" [] "Whether every partition has all its replicas and every table is acknowledged"
        METADATA_NODES: Gauge "nicekv_metadata_nodes" ["state"] "Nodes: live, suspected, unknown"
        METADATA_SWITCHES: Gauge "nicekv_metadata_switches" ["state"] "Switches: current (they have the newest tables), behind, disconnected"
        METADATA_PARTITIONS: Gauge "nicekv_metadata_partitions" ["keyspace", "health"] "Partitions: whole, covered (by handoffs), reduced (fewer than R copies), waiting (to take puts), unavailable, lost"
        METADATA_MOVES: Gauge "nicekv_metadata_moves" [] "Replicas that are not yet where they are to be"
        METADATA_RESHAPINGS: Gauge "nicekv_metadata_reshapings" ["phase"] "Partitions that are split or merged: waiting, forming (their members make what takes their place), sealed (they take no op), succeeding (what took their place is not whole yet)"
        METADATA_BALANCING_STEPS: Counter "nicekv_metadata_balancing_steps" ["keyspace", "step"] "What balancing by migration has begun since this instance leads: move, split, merge (a pair of partitions)"
        METADATA_BALANCING_LOAD: Gauge "nicekv_metadata_balancing_most_loaded_percent" ["keyspace"] "What the most loaded node has had to do in the last period, in percent of the mean; none before the first one"
        METADATA_HOT_KEYS: Gauge "nicekv_metadata_hot_keys" ["keyspace"] "Match values that alone are too hot for any node: moving does not help; `nicekv partition balance` names them"
        METADATA_HOT_ENTRIES: Gauge "nicekv_metadata_hot_entries" ["switch"] "Hot keys (balancing=hot) that have an entry in a switch, those that it only counts included"
        METADATA_HOT_COPIED: Gauge "nicekv_metadata_hot_copied_keys" ["switch"] "Of these, keys of which other nodes than the members of their partitions hold copies"
        METADATA_HOT_COPIES: Gauge "nicekv_metadata_hot_copies" ["switch"] "Copies of hot keys"
        METADATA_HOT_VALUES: Gauge "nicekv_metadata_hot_values" ["switch"] "Hot keys of which the switch is to have a copy itself, from which it answers gets"
        METADATA_HOT_THRESHOLD: Gauge "nicekv_metadata_hot_threshold_per_second" ["switch"] "T: a key that is asked more often in a second is to have copies"
        METADATA_HOT_IMBALANCE: Gauge "nicekv_metadata_hot_imbalance_percent" ["switch"] "How far the loads of nodes were from their mean in the last period, in percent of it, on average"
        METADATA_HOT_SHARE: Gauge "nicekv_metadata_hot_requests_percent" ["switch"] "Requests of the last period that were for keys with an entry"
        METADATA_HOT_ANSWERED: Gauge "nicekv_metadata_hot_answered_percent" ["switch"] "Requests of the last period that the switch has answered itself"
        METADATA_HOT_CHANGES: Counter "nicekv_metadata_hot_changes" ["switch"] "Entries that this leader has installed, changed or removed"
        METADATA_HOT_REFUSED: Counter "nicekv_metadata_hot_refused" ["switch"] "Keys that a switch has counted and that are nobody's: of a keyspace that is gone, or made up"
        METADATA_HOT_FAILING: Gauge "nicekv_metadata_hot_failing" ["switch"] "Whether the switch has not done what it was asked last of hot keys; `nicekv status` says why"
        METADATA_KEYS: Gauge "nicekv_metadata_keys" ["keyspace"] "Keys with a value, as far as they are counted"
        METADATA_BYTES: Gauge "nicekv_metadata_stored_bytes" ["keyspace"] "Keys and values, counted once"
        METADATA_GETS: Gauge "nicekv_metadata_gets_per_second" ["keyspace"] "Gets that came to the nodes in a second, between their last two reports"
        METADATA_UPDATES: Gauge "nicekv_metadata_updates_per_second" ["keyspace"] "Updates, likewise"
        METADATA_IGNORED: Counter "nicekv_metadata_ignored" ["reason"] "Messages that were not taken: malformed, foreign, forged, stale; and datagrams not sent: transmits_dropped"
        METADATA_OTHER_VERSION: Counter "nicekv_metadata_other_version" [] "Datagrams and streams of another wire version or control protocol: somebody is of another release; `nicekv status` says who"
        METADATA_PERSISTS: Histogram "nicekv_metadata_persist_duration_seconds" [] "How long it took to persist each step"
        METADATA_DATAGRAMS: Counter "nicekv_metadata_datagrams" ["outcome"] "Datagrams at its socket: received, sent, lost, too_long"
    }
    Gateway {
        GATEWAY_THREADS: Gauge "nicekv_gateway_threads" ["gateway"] "Threads"
        GATEWAY_CONNECTIONS: Gauge "nicekv_gateway_connections" ["gateway"] "Open connections"
        GATEWAY_CONNECTIONS_MAX: Gauge "nicekv_gateway_connections_max" ["gateway"] "Connections that there may be"
        GATEWAY_ACCEPTED: Counter "nicekv_gateway_connections_accepted" ["gateway"] "Connections ever accepted"
        GATEWAY_REFUSED: Counter "nicekv_gateway_connections_refused" ["gateway"] "Connections refused because there were too many"
        GATEWAY_EVICTED: Counter "nicekv_gateway_connections_evicted" ["gateway"] "Connections closed because all together held too much memory"
        GATEWAY_PROTECTED: Counter "nicekv_gateway_connections_denied" ["gateway"] "Connections from other hosts that were refused, as nobody needs a password (protected mode)"
        GATEWAY_HANDSHAKES: Counter "nicekv_gateway_tls_handshakes" ["gateway", "outcome"] "TLS handshakes: done, failed, timed_out, displaced (there were too many)"
        GATEWAY_HANDSHAKES_OPEN: Gauge "nicekv_gateway_tls_handshakes_open" ["gateway"] "TLS handshakes under way"
        GATEWAY_DENIED: Counter "nicekv_gateway_access_denied" ["gateway", "reason"] "What was refused to users: auth (logins that failed), command, key"
        GATEWAY_MEMORY: Gauge "nicekv_gateway_connection_memory_bytes" ["gateway"] "Commands and replies that connections hold, less large values"
        GATEWAY_MEMORY_MAX: Gauge "nicekv_gateway_connection_memory_max_bytes" ["gateway"] "What they may hold together"
        GATEWAY_LARGE: Gauge "nicekv_gateway_large_value_bytes" ["gateway"] "Large arguments and values that connections hold or were granted"
        GATEWAY_LARGE_MAX: Gauge "nicekv_gateway_large_value_max_bytes" ["gateway"] "What they may hold together"
        GATEWAY_LARGE_WAITING: Gauge "nicekv_gateway_large_values_waiting" ["gateway"] "Arguments and replies that wait for room for large values"
        GATEWAY_STALLED: Counter "nicekv_gateway_connections_stalled" ["gateway"] "Connections closed because they neither sent nor read while others waited for room for large values"
        GATEWAY_COMMANDS: Counter "nicekv_gateway_commands" ["gateway"] "Commands taken"
        GATEWAY_REQUESTS: Counter "nicekv_gateway_requests" ["gateway"] "Requests made to the store"
        GATEWAY_IN_FLIGHT: Gauge "nicekv_gateway_requests_in_flight" ["gateway"] "Requests that are not answered yet"
        GATEWAY_FAILED: Counter "nicekv_gateway_request_failures" ["gateway", "reason"] "Requests that failed: outcome_unknown, timed_out, busy, disk_full; refused (what was asked for cannot be done)"
        GATEWAY_RETRIES: Counter "nicekv_gateway_retries" ["gateway"] "Datagrams sent again because no answer came in time"
        GATEWAY_BUSY: Counter "nicekv_gateway_busy_answers" ["gateway"] "Answers of nodes that they are at a bound"
        GATEWAY_OTHER_VERSION: Counter "nicekv_gateway_other_version" ["gateway"] "Answers of another wire version: somebody is of another release; the log says who"
        GATEWAY_LATENCY: Histogram "nicekv_gateway_request_duration_seconds" ["gateway", "command"] "From when a command's request was issued to when it was answered or given up, by command; one with several keys has a request for each"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
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
            // A target has the name of its node.
            let label = if metric.owner == Owner::Target { "node" } else { owner };
            assert!(metric.owner == Owner::Metadata || metric.labels[0] == label, "{metric:?}");
        }
    }
}

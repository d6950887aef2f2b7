//! Problems of a cluster, worst first: the WRONG lines of `nicekv status` and `nicekv top`.

use crate::open_sockets::exposed;
use nicekv_metadata::{
    DiskState, HealthCounts, NodeState, NodeStatus, OtherReleaseStatus, PeerStatus, Status, SwitchStatus,
};
use nicekv_runtime::in_words;
use std::time::Duration;

/// A table that is fuller than this is reported as a problem.
const FULL_PERCENT: u32 = 90;

/// One line for each problem.
pub(crate) fn problems(status: &Status) -> Vec<String> {
    let mut lines = of_partitions(&status.health);
    if let Some((since_ms, why)) = &status.control_plane.outage {
        let since_s = since_ms.div_ceil(1000);
        lines.push(format!("the metadata service's store has not answered for {since_s} s: {why}"));
    }
    lines.extend(of_strangers(&status.control_plane.other_releases, &status.nodes));
    lines.extend(status.nodes.iter().flat_map(of_node));
    lines.extend(status.switches.iter().filter_map(of_switch));
    lines.extend(exposed(&status.control_plane.listening));
    lines.extend(status.control_plane.peers.iter().filter_map(|peer| of_peer(peer, status)));
    let full = status.tables.iter().filter(|table| table.entries * 100 > table.capacity * FULL_PERCENT);
    lines.extend(full.map(|table| {
        format!("table {} has {} of {} entries in use", table.name, table.entries, table.capacity)
    }));
    let left_out = status.balancing.map_or(0, |balancing| balancing.left_out);
    if left_out > 0 {
        lines.push(format!(
            "gets of {left_out} partitions are not balanced: the division table is full, so their primaries answer all gets"
        ));
    }
    let scarce = status.chunks.as_ref().map_or(0, |chunks| chunks.under_replicated);
    if scarce > 0 {
        lines.push(format!("{scarce} chunks of objects have too few copies; they are being copied"));
    }
    if lines.is_empty() {
        lines.extend(status.why_not_ready.iter().map(|reason| format!("not ready: {reason}")));
    }
    lines
}

fn of_partitions(health: &HealthCounts) -> Vec<String> {
    let HealthCounts { lost, unavailable, waiting, reduced, .. } = *health;
    let counts = [
        (lost, "lost: every node with all its data came back empty; restore a backup"),
        (unavailable, "unavailable: no node with all its data is up; start its nodes"),
        (waiting, "without puts: too few of its nodes are up; gets continue"),
        (reduced, "with fewer than R copies: another failure could make it unavailable"),
    ];
    let line = |(count, what): (usize, &str)| {
        let partitions = if count == 1 { "partition is" } else { "partitions are" };
        format!("{count} {partitions} {what}")
    };
    counts.into_iter().filter(|(count, _)| *count > 0).map(line).collect()
}

fn of_node(node: &NodeStatus) -> Vec<String> {
    let NodeStatus { name, address, .. } = node;
    let state = match node.state {
        NodeState::Live => None,
        NodeState::Suspected => Some(format!(
            "node {name} ({address}) is suspected: it does not send heartbeats or does not receive"
        )),
        NodeState::Unknown => Some(format!("node {name} ({address}) has never sent a heartbeat")),
    };
    let disk = match node.disk {
        DiskState::Enough => None,
        DiskState::Reserve => Some(format!(
            "the disk of node {name} is full: puts are refused, gets and deletes continue; free space on the disk or delete keys"
        )),
        DiskState::Exhausted => Some(format!(
            "the disk of node {name} is completely full: puts and deletes are refused; free space on the disk"
        )),
    };
    let forgotten = (node.forgotten > 0).then(|| {
        format!(
            "node {name} lost data that it had confirmed (an older directory, a lost log or a faulty disk): it copies {} partitions again; check its disk",
            node.forgotten
        )
    });
    state.into_iter().chain(disk).chain(forgotten).collect()
}

/// A warning about senders with another protocol version, whose messages are dropped. One line for
/// all of them, because the sender address of a datagram can be forged.
fn of_strangers(other_releases: &[OtherReleaseStatus], nodes: &[NodeStatus]) -> Option<String> {
    let name_of = |other_release: &OtherReleaseStatus| {
        nodes.iter().find(|node| other_release.address == *node.address.ip()).map(|node| &node.name)
    };
    // Names a node of the cluster if there is one, otherwise the most recent sender.
    let shown = other_releases
        .iter()
        .min_by_key(|other_release| (name_of(other_release).is_none(), other_release.ago_ms))?;
    let OtherReleaseStatus { address, protocol, version, known, ago_ms, .. } = shown;
    let name = name_of(shown).map(|name| format!(" ({name})")).unwrap_or_default();
    let others = match other_releases.len() - 1 {
        0 => String::new(),
        others => format!("; and {others} other senders or versions, see `nicekv status --json`"),
    };
    Some(format!(
        "{address}{name} sends version {version} of the {protocol} protocol, this cluster uses version {known}: its messages are dropped; last one {} s ago{others}",
        ago_ms / 1000
    ))
}

/// A warning about a metadata instance that does not answer the leader.
fn of_peer(peer: &PeerStatus, status: &Status) -> Option<String> {
    let PeerStatus { name, addresses, silent } = peer;
    let (since_ms, why) = silent.as_ref()?;
    let peers = &status.control_plane.peers;
    let left = 1 + peers.iter().filter(|peer| peer.silent.is_none()).count();
    let address = addresses.first().map(|address| format!(" ({address})")).unwrap_or_default();
    Some(format!(
        "metadata instance {name}{address} has not answered for {}: {why}; {left} of {} instances are left, and without any the cluster stops: restart it, and see its log",
        in_words(Duration::from_millis(*since_ms)),
        1 + peers.len()
    ))
}

fn of_switch(switch: &SwitchStatus) -> Option<String> {
    let SwitchStatus { id, connected, current, error, missing_ports, .. } = switch;
    match (connected, error, current) {
        (true, None, _) if !missing_ports.is_empty() => {
            let missing =
                missing_ports.iter().map(|missing| format!("{} for {}", missing.port, missing.name));
            let missing = missing.collect::<Vec<_>>().join(", ");
            Some(format!(
                "switch {id} lacks ports {missing}: these nodes are unreachable; restart the switch with the ports, or remove the nodes"
            ))
        }
        (false, _, _) => Some(format!("switch {id} is not connected: its tables may be out of date")),
        (true, Some(error), _) => Some(format!("switch {id} refused its tables: {error}")),
        (true, None, false) => Some(format!("switch {id} does not have the newest tables yet")),
        (true, None, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(changes: impl FnOnce(&mut Value)) -> Status {
        let health =
            json!({"whole": 8, "covered": 0, "reduced": 0, "waiting": 0, "unavailable": 0, "lost": 0});
        let node = json!({"id": 1, "name": "node-1", "address": "127.20.0.1:7400", "state": "live",
            "disk": "enough", "desired": "holds", "members": 8, "share": 8, "missing": 0});
        let mut value = json!({
            "cluster": "c", "term": 3, "ready": true, "why_not_ready": null, "moves": 0, "health": health,
            "nodes": [node], "keyspaces": [], "partitions": [],
            "switches": [{"id": 0, "connected": true, "current": true, "error": null}],
            "tables": [{"name": "division", "entries": 9, "capacity": 10, "hits": 0}],
            "counters": {"malformed": 0, "foreign": 0, "forged": 0, "stale": 0, "transmits_dropped": 0},
        });
        changes(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn healthy_cluster_has_no_problems() {
        assert_eq!(problems(&status(|_| ())), [""; 0]);
    }

    #[test]
    fn each_problem_is_one_line_and_the_worst_is_first() {
        type Break = fn(&mut Value);
        let breaks: [(Break, &str); 12] = [
            (|status| status["health"]["lost"] = 1.into(), "1 partition is lost"),
            (|status| status["health"]["unavailable"] = 2.into(), "2 partitions are unavailable"),
            (|status| status["health"]["waiting"] = 2.into(), "2 partitions are without puts"),
            (|status| status["health"]["reduced"] = 2.into(), "fewer than R copies"),
            (
                |status| status["nodes"][0]["state"] = "suspected".into(),
                "node node-1 (127.20.0.1:7400) is suspected",
            ),
            (|status| status["nodes"][0]["disk"] = "reserve".into(), "the disk of node node-1 is full"),
            (|status| status["switches"][0]["connected"] = false.into(), "switch 0 is not connected"),
            (|status| status["switches"][0]["error"] = "no room".into(), "refused its tables: no room"),
            (
                |status| status["switches"][0]["current"] = false.into(),
                "switch 0 does not have the newest tables",
            ),
            (|status| status["tables"][0]["entries"] = 10.into(), "table division has 10 of 10 entries"),
            (
                |status| {
                    status["balancing"] = json!({"divided": 1, "left_out": 7, "entries_per_partition": 4,
                        "sources": 0, "divided_by_load": 0});
                },
                "gets of 7 partitions are not balanced",
            ),
            (
                |status| {
                    status["control_plane"] = json!({"instance": "", "store": "file", "outage": null,
                        "instances": [], "other_releases": [{"address": "127.20.0.1", "protocol": "wire",
                        "version": 9, "known": 2, "count": 4, "ago_ms": 3100}]});
                },
                "127.20.0.1 (node-1) sends version 9 of the wire protocol, this cluster uses version 2",
            ),
        ];
        for (broken, part) in breaks {
            let lines = problems(&status(broken));
            assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {lines:?}");
        }
        let all = problems(&status(|status| {
            // These problems of one switch hide each other, so they are tested one at a time.
            breaks
                .into_iter()
                .filter(|(_, part)| !part.contains("tables"))
                .for_each(|(broken, _)| broken(status));
            status["why_not_ready"] = "and so on".into();
        }));
        assert!(all.len() == 10 && all[0].contains("lost") && all[8].contains("division"), "{all:?}");
        let waiting = problems(&status(|status| status["why_not_ready"] = "an epoch".into()));
        assert_eq!(waiting, ["not ready: an epoch"], "if there is no other problem");
    }

    #[test]
    fn senders_of_other_releases_share_one_line() {
        let other_release = |address: &str, version: u32, ago_ms: u64| json!({"address": address, "protocol": "wire", "version": version, "known": 2, "count": 1, "ago_ms": ago_ms});
        let lines = problems(&status(|status| {
            let mut other_releases: Vec<Value> =
                (0..16).map(|at| other_release("10.9.9.9", 100 + at, 50)).collect();
            other_releases.insert(7, other_release("127.20.0.1", 3, 9_000));
            status["control_plane"] = json!({"instance": "", "store": "file", "outage": null, "instances": [],
                "other_releases": other_releases});
        }));
        let expected = "127.20.0.1 (node-1) sends version 3 of the wire protocol, this cluster uses version 2: its messages are dropped; \
            last one 9 s ago; and 16 other senders or versions, see `nicekv status --json`";
        assert_eq!(lines, [expected]);
    }
}

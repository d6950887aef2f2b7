//! `nicekv explain`, and the first lines of `nicekv status`, for a running cluster.

use crate::cluster::{Up, nicekv, outcome};
use std::collections::BTreeSet;

#[test]
fn explain_compares_tables_nodes_and_metadata() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments =
        ["--engine", "memory", "--nodes", "4", "--keyspace", "sessions=replication=quorum,write-set=2"];
    let up = Up::start(scratch.path(), &arguments);
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let explained = || -> serde_json::Value {
        let (code, json, error) = run(&["explain", "color", "--json"]);
        assert_eq!((code, error.as_str()), (Some(0), ""));
        serde_json::from_str(&json).unwrap()
    };
    let before = explained();
    assert_eq!(before["differences"], serde_json::json!([]), "{before}");
    let members = before["partition"]["members"].as_array().unwrap();
    let members: Vec<_> = members.iter().map(|member| member["node"].as_u64().unwrap()).collect();
    let put = &before["switches"][0]["found"]["multicast"];
    let copies: Vec<_> =
        put["entry"]["members"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let sorted = {
        let mut members = members.clone();
        members.sort_unstable();
        members
    };
    assert_eq!((copies, members.len()), (sorted, 3));
    assert_eq!(before["switches"][0]["found"]["unicast"]["entry"]["host"], before["partition"]["primary"]);
    let leads = |told: &serde_json::Value| {
        let nodes = told["nodes"].as_array().unwrap().iter();
        let own = nodes.map(|node| node[1]["partition"].clone());
        own.filter(|own| own["leads"] == true).map(|own| own["logged"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(&["put", "color", "blue"]).0, Some(0));
    let after = explained();
    let hits = |told: &serde_json::Value| told["switches"][0]["found"]["multicast"]["hits"].as_u64().unwrap();
    assert!(hits(&after) > hits(&before), "the put was counted by the table entry that it matched");
    assert!(
        leads(&after).len() == 1 && leads(&after)[0] > leads(&before)[0],
        "the primary has decided the put"
    );

    let (code, text, _) = run(&["explain", "color"]);
    for part in
        ["key \"color\" of keyspace default", "get: unicast_vring", "put: multicast_vring", "leads", "agree"]
    {
        assert!(code == Some(0) && text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = run(&["explain", "color", "--keyspace", "sessions"]);
    assert!(code == Some(0) && text.contains("keyspace sessions") && text.contains("agree"), "{text}");
    let (code, _, error) = run(&["explain", &"k".repeat(1_025)]);
    assert!(code == Some(2) && error.contains("1024") && error.lines().count() == 1, "{error}");
    let (code, _, error) = run(&["explain", "color", "--keyspace", "none"]);
    assert!(code == Some(2) && error.contains("none"), "{error}");

    let (_, status, _) = run(&["status"]);
    assert!(status.starts_with("cluster ") && !status.contains("WRONG"), "{status}");
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn trace_follows_a_put_and_a_get_hop_by_hop() {
    let scratch = tempfile::tempdir().unwrap();
    let quorum = ["--engine", "durable", "--keyspace", "sessions=replication=quorum,write-set=2"];
    let up = Up::start(scratch.path(), &quorum);
    let run = |arguments: &[&str]| outcome(nicekv(scratch.path(), arguments));
    let traced = |arguments: &[&str]| -> Vec<(String, String)> {
        let (code, json, error) = run(&[&["trace"], arguments, &["--json"]].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""));
        let traced: serde_json::Value = serde_json::from_str(&json).unwrap();
        let steps = traced["steps"].as_array().unwrap();
        let times: Vec<_> = steps.iter().map(|step| step["after_us"].as_f64().unwrap()).collect();
        assert!(times.is_sorted() && traced["notes"] == serde_json::json!([]), "{json}");
        let text = |step: &serde_json::Value, field: &str| step[field].as_str().unwrap().to_owned();
        steps.iter().map(|step| (text(step, "place"), text(step, "what"))).collect()
    };
    // Counts each hop once per place, even if a datagram was sent again.
    let count = |steps: &[(String, String)], what: &str| {
        steps.iter().filter(|(_, said)| said.starts_with(what)).collect::<BTreeSet<_>>().len()
    };
    let put = traced(&["put", "color", "blue"]);
    for (what, times) in [
        ("sends to", 1),
        ("arrived", 3),
        ("logged and synced", 3),
        ("acknowledged by", 3),
        ("decided, fast path", 1),
        ("the decision arrived, fast path", 2),
        ("shows", 3),
        ("passes Update on, 3 copies", 1),
        ("answered: Ok", 1),
        ("has its answer: done", 1),
    ] {
        assert_eq!(count(&put, what), times, "{what}: {put:#?}");
    }
    assert_eq!(put[0].0, "client");
    let get = traced(&["get", "color"]);
    assert_eq!((count(&get, "arrived"), count(&get, "answered: Ok")), (1, 1), "{get:#?}");
    assert_eq!(count(&get, "has its answer: 4 bytes"), 1, "{get:#?}");
    let hop = get.iter().position(|(place, what)| place == "switch" && what == "passes Get on");
    let arrived = get.iter().position(|(_, what)| what == "arrived");
    assert!(hop.is_some() && hop < arrived, "the switch is on the way: {get:#?}");

    let by_quorum = traced(&["put", "color", "green", "--keyspace", "sessions"]);
    assert!(
        count(&by_quorum, "arrived") == 3 && count(&by_quorum, "logged and synced") >= 2,
        "{by_quorum:#?}"
    );
    let (code, text, _) = run(&["trace", "get", "none"]);
    assert!(code == Some(0) && text.contains("no value") && text.contains("unicast_vring"), "{text}");
    let (code, _, error) = run(&["trace", "get", &"k".repeat(1_025)]);
    assert!(code == Some(2) && error.contains("1024") && error.lines().count() == 1, "{error}");
    assert_eq!(up.interrupt(), Some(0));
}

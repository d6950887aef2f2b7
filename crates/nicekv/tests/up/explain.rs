//! `nicekv explain` and what `nicekv status` begins with, of a running cluster.

use crate::cluster::{Up, nicekv, outcome};

#[test]
fn a_key_is_explained_by_what_is_installed_and_what_nodes_say() {
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
    assert!(hits(&after) > hits(&before), "the entry that puts of this key meet has met one more");
    assert!(
        leads(&after).len() == 1 && leads(&after)[0] > leads(&before)[0],
        "and its primary has decided it"
    );

    let (code, text, _) = run(&["explain", "color"]);
    for part in
        ["key \"color\" of keyspace default", "get: unicast_vring", "put: multicast_vring", "leads", "agree"]
    {
        assert!(code == Some(0) && text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = run(&["explain", "color", "--keyspace", "sessions"]);
    assert!(code == Some(0) && text.contains("keyspace sessions") && text.contains("agree"), "{text}");
    let (code, _, error) = run(&["explain", &"k".repeat(257)]);
    assert!(code == Some(2) && error.contains("256") && error.lines().count() == 1, "{error}");
    let (code, _, error) = run(&["explain", "color", "--keyspace", "none"]);
    assert!(code == Some(2) && error.contains("none"), "{error}");

    let (_, status, _) = run(&["status"]);
    assert!(status.starts_with("cluster ") && !status.contains("WRONG"), "{status}");
    assert_eq!(up.interrupt(), Some(0));
}

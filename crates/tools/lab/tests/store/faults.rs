//! Faults of the network, of processes and of the switch, while clients write. Nothing acknowledged
//! is lost.

use std::time::Instant;

use serde_json::Value;

use crate::fixture::{LabUnderTest, text};
use crate::load::{Load, Redis};
use crate::tap::Tap;
use crate::{NODES, TIMEOUT, Victim, as_root, as_root_in_long_runs, nicekv, status, wait_for};

pub(crate) fn is_ready(status: &Value) -> bool {
    status["ready"] == true
}

pub(crate) fn is_out(status: &Value, node: usize) -> bool {
    let members = |partition: &Value| partition["members"].as_array().unwrap().clone();
    let partitions = status["partitions"].as_array().unwrap();
    !partitions.iter().flat_map(members).any(|member| member["node"] == node)
}

#[test]
fn puts_go_on_when_nodes_are_cut_off_and_when_one_is_paused() {
    as_root_in_long_runs("puts_go_on_when_nodes_are_cut_off_and_when_one_is_paused", || {
        let lab = LabUnderTest::up("cut", &[]);
        Load::during(&lab, |load| {
            // A node receives nothing, sends nothing, does neither, or is paused for longer than
            // its lease.
            let faults: [(Victim, &[&str], &str); 4] = [
                (Victim::Secondary, &["cut", "--in"], "heal"),
                (Victim::Primary, &["cut", "--out"], "heal"),
                (Victim::Primary, &["cut"], "heal"),
                (Victim::Primary, &["pause"], "resume"),
            ];
            for (role, fault, end) in faults {
                let victim = role.of(&status(&lab)["partitions"][0]);
                let name = format!("node-{victim}");
                lab.succeeds(&[fault, &[&name]].concat());
                wait_for(&lab, |status| is_out(status, victim));
                load.wait_for_progress();
                lab.succeeds(&[end, &name]);
                wait_for(&lab, is_ready);
                load.wait_for_progress();
            }
        });
        lab.down();
    });
}

#[test]
fn puts_go_on_with_loss_and_duplicates() {
    as_root_in_long_runs("puts_go_on_with_loss_and_duplicates", || {
        let lab = LabUnderTest::up("loss", &["--nodes", "3", "--engine", "memory"]);
        Load::during(&lab, |load| {
            lab.succeeds(&["duplicate", "30"]);
            load.wait_for_progress();
            lab.succeeds(&["loss", "10"]);
            load.wait_for_progress();
            let faults = &lab.host("client-0")["faults"];
            for count in ["lost_frames", "doubled_frames"] {
                assert!(faults[count].as_u64() > Some(0), "{faults}");
            }
            lab.succeeds(&["heal"]);
            wait_for(&lab, is_ready);
            load.wait_for_progress();
        });
        lab.down();
    });
}

#[test]
fn restarted_switch_drops_vring_traffic_until_its_tables_are_installed() {
    as_root("restarted_switch_drops_vring_traffic_until_its_tables_are_installed", || {
        let lab = LabUnderTest::up("switch", &[]);
        Load::during(&lab, |load| {
            lab.succeeds(&["switch-restart"]);
            load.wait_for_progress();
            wait_for(&lab, is_ready);
        });
        // Without the metadata service the switch stays empty.
        lab.succeeds(&["kill", "metadata"]);
        lab.succeeds(&["switch-restart"]);
        let client = Tap::on(&lab, "client-0");
        let nodes: Vec<Tap> = (0..NODES).map(|node| Tap::on(&lab, &format!("node-{node}"))).collect();
        let mut redis = Redis::on(&lab, "client-0");
        let get = redis.ask(&["GET", "writer-0-0"]);
        assert!(get.as_ref().is_err_and(|error| error.contains("timed out")), "{get:?}");
        let put = redis.ask(&["SET", "color", "blue"]);
        assert!(put.as_ref().is_err_and(|error| error.contains("outcome unknown")), "{put:?}");
        assert!(
            client.count(|packet| packet.destination[0] == 10 && [10, 11].contains(&packet.destination[1]))
                > 1
        );
        let arrived: usize =
            nodes.iter().map(|node| node.count(|packet| packet.source == [10, 20, 2, 1])).sum();
        assert_eq!(arrived, 0, "an empty switch forwards nothing");
        lab.succeeds(&["start", "metadata"]);
        let deadline = Instant::now() + TIMEOUT;
        while redis.ask(&["GET", "writer-0-0"]).is_err() {
            assert!(Instant::now() < deadline, "the switch gets no tables");
        }
        wait_for(&lab, is_ready);
        lab.down();
    });
}

#[test]
fn errors_name_the_metadata_service_that_is_gone() {
    as_root("errors_name_the_metadata_service_that_is_gone", || {
        let lab = LabUnderTest::up("unled", &["--engine", "memory", "--nodes", "3"]);
        let mut redis = Redis::on(&lab, "client-0");
        assert_eq!(redis.ask(&["SET", "color", "blue"]), Ok("OK".into()));
        lab.succeeds(&["kill", "metadata"]);
        let deadline = Instant::now() + TIMEOUT;
        // Gets are answered until the leases expire.
        let error = loop {
            if let Err(error) = redis.ask(&["GET", "color"]) {
                break error;
            }
            assert!(Instant::now() < deadline, "gets are answered without leases");
        };
        for part in [
            "timed out: no replica answered before the deadline; ",
            "no metadata service has answered for ",
            "start it again",
        ] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
        let native = nicekv(&lab, &["get", "color"]);
        let said = text(&native.stderr);
        assert_eq!((native.status.code(), said.lines().count()), (Some(2), 1), "{native:?}");
        for part in [
            "no answer from a leading metadata service (10.20.0.2:7400: ",
            "gets stop when the nodes' leases expire",
        ] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        lab.succeeds(&["start", "metadata"]);
        wait_for(&lab, is_ready);
        while redis.ask(&["GET", "color"]) != Ok("blue".into()) {
            assert!(Instant::now() < deadline, "gets are not answered again");
        }
        lab.down();
    });
}

#[test]
fn chaos_finds_nothing_and_leaves_nothing() {
    as_root("chaos_finds_nothing_and_leaves_nothing", || {
        let lab = LabUnderTest::new("c");
        let quorum = ["--keyspace", "sessions=replication=quorum,write-set=2"];
        let output = lab.succeeds(&[&["chaos", "--minutes", "0.3", "--seed", "7"][..], &quorum].concat());
        let said = text(&output.stdout);
        assert!(said.contains("--seed 7") && said.contains("linearizable, all read back"), "{said}");
        for name in ["default", "sessions"] {
            let start = format!("keyspace {name}: ");
            let line =
                said.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{said}"));
            let operations: u32 = line.split(' ').next().unwrap().parse().unwrap();
            assert!(operations > 100 && line.ends_with("linearizable, all read back"), "{said}");
        }
        lab.assert_nothing_left();
    });
}

#[test]
fn nothing_acknowledged_is_missing_when_the_power_comes_back() {
    as_root_in_long_runs("nothing_acknowledged_is_missing_when_the_power_comes_back", || {
        let lab = LabUnderTest::new("p");
        let output = lab.succeeds(&["power-loss", "--times", "5", "--seed", "7"]);
        let said = text(&output.stdout);
        assert!(said.contains("5 times") && said.ends_with(" 0 missing\n"), "{said}");
        lab.assert_nothing_left();
    });
}

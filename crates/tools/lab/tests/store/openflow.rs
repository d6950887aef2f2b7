//! An Open vSwitch as the switch of a lab (NICE §5): the cluster goes on when its datapath, its
//! controller or a node dies, and says what such a switch cannot do.

use crate::fixture::{LabUnderTest, text};
use crate::load::{Load, Redis};
use crate::{as_root, nicekv, status, succeeds, wait_for};

#[test]
fn a_cluster_behind_open_vswitch_serves_and_survives_its_switch_its_controller_and_a_node() {
    let name = "a_cluster_behind_open_vswitch_serves_and_survives_its_switch_its_controller_and_a_node";
    as_root(name, || {
        if !nicekv_testkit::needs(&["ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovsdb-tool"], name) {
            return;
        }
        let lab = LabUnderTest::up("openflow", &["--switch", "openflow", "--nodes", "3"]);
        let mut redis = Redis::on(&lab, "client-0");
        let large = "x".repeat(300_000);
        assert_eq!(redis.ask(&["SET", "large", &large]), Ok("OK".into()));
        assert_eq!(redis.ask(&["GET", "large"]), Ok(large));
        Load::during(&lab, |load| {
            for host in ["switch", "ovs-0", "node-1", "metadata"] {
                lab.succeeds(&["kill", host]);
                lab.succeeds(&["start", host]);
                wait_for(&lab, |status| status["ready"] == true && status["switches"][0]["current"] == true);
                load.wait_for_progress();
            }
        });
        assert_eq!(status(&lab)["switches"][0]["error"], serde_json::Value::Null);
        let explained = succeeds(&lab, &["explain", "large"]);
        assert!(explained.ends_with("metadata service, switches and nodes agree\n"), "{explained}");
        let refused = nicekv(&lab, &["keyspace", "create", "logs", "--replication", "chain"]);
        let why = "an OpenFlow switch cannot write the chain into requests";
        assert!(!refused.status.success() && text(&refused.stderr).contains(why), "{refused:?}");
        let refused = lab.command(&["cut", "node-0"]).output().unwrap();
        assert!(text(&refused.stderr).contains("use kill and pause"), "{refused:?}");
    });
}

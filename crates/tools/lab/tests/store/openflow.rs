//! An Open vSwitch as the switch of a lab (NICE §5): the cluster goes on when its datapath, its
//! controller or a node dies, and says what such a switch cannot do.

use crate::fixture::{LabUnderTest, text};
use crate::load::{Load, Redis};
use crate::{as_root, as_root_in_long_runs, nicekv, status, succeeds, wait_for};

/// What a lab with Open vSwitch needs; `nft` is for faults of links, `ovs-ofctl` for these tests.
const TOOLS: [&str; 6] = ["ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovsdb-tool", "ovs-ofctl", "nft"];

/// What the switch's own tool shows.
fn dump(lab: &LabUnderTest, what: &str) -> String {
    let directory = status(lab)["config"].as_str().unwrap().replace("config.toml", "ovs-switch");
    let directory = format!("OVS_RUNDIR={directory}");
    let ofctl = ["exec", "switch", "--", "env", &directory, "ovs-ofctl", "-O", "OpenFlow13", what, "br0"];
    text(&lab.succeeds(&ofctl).stdout)
}

#[test]
fn a_cluster_behind_open_vswitch_serves_and_survives_its_switch_its_controller_and_a_node() {
    let name = "a_cluster_behind_open_vswitch_serves_and_survives_its_switch_its_controller_and_a_node";
    as_root(name, || {
        if !nicekv_testkit::needs(&TOOLS, name) {
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
            lab.succeeds(&["cut", "node-0"]);
            wait_for(&lab, |status| status["ready"] == false);
            load.wait_for_progress();
            lab.succeeds(&["heal"]);
            wait_for(&lab, |status| status["ready"] == true);
        });
        assert_eq!(status(&lab)["switches"][0]["error"], serde_json::Value::Null);
        let explained = succeeds(&lab, &["explain", "large"]);
        assert!(explained.ends_with("metadata service, switches and nodes agree\n"), "{explained}");
        // What it names is what the switch's own tool shows.
        let flows = dump(&lab, "dump-flows");
        let groups = dump(&lab, "dump-groups");
        let put = explained.lines().find_map(|line| line.trim().strip_prefix("put: ")).unwrap();
        let (_, flow) = put.split_once("flow table=").unwrap_or_else(|| panic!("{explained}"));
        let [table, priority, group] = flow.split(',').collect::<Vec<_>>()[..] else { panic!("{flow}") };
        let group = group.strip_prefix("actions=").unwrap();
        let is_it = |line: &&str| {
            line.contains(&format!(" table={table}, "))
                && line.contains(&format!(" {priority},"))
                && line.ends_with(&format!("actions={group}"))
        };
        assert!(flows.lines().any(|line| is_it(&line)), "{flow}: {flows}");
        let group = format!("group_id={},type=all,", group.strip_prefix("group:").unwrap());
        let copies = groups.lines().find(|line| line.contains(&group)).unwrap_or_else(|| panic!("{groups}"));
        assert_eq!(copies.matches("bucket=").count(), 3, "{copies}");
        let refused = nicekv(&lab, &["keyspace", "create", "logs", "--replication", "chain"]);
        let why = "an OpenFlow switch cannot write the chain into requests";
        assert!(!refused.status.success() && text(&refused.stderr).contains(why), "{refused:?}");
    });
}

#[test]
fn chaos_finds_nothing_behind_two_open_vswitches() {
    let name = "chaos_finds_nothing_behind_two_open_vswitches";
    as_root_in_long_runs(name, || {
        if !nicekv_testkit::needs(&TOOLS, name) {
            return;
        }
        let lab = LabUnderTest::new("of-chaos");
        let switches = ["--switch", "openflow", "--switches", "2"];
        let quorum = ["--keyspace", "sessions=replication=quorum,write-set=2"];
        let chaos = [&["chaos", "--minutes", "1", "--seed", "3"][..], &switches, &quorum].concat();
        let said = text(&lab.succeeds(&chaos).stdout);
        assert!(said.contains("linearizable, all read back"), "{said}");
        lab.assert_nothing_left();
    });
}

#[test]
fn nothing_acknowledged_is_missing_when_the_power_of_an_open_vswitch_comes_back() {
    let name = "nothing_acknowledged_is_missing_when_the_power_of_an_open_vswitch_comes_back";
    as_root(name, || {
        if !nicekv_testkit::needs(&TOOLS, name) {
            return;
        }
        let lab = LabUnderTest::new("of-power");
        let power_loss = ["power-loss", "--times", "2", "--seed", "3", "--switch", "openflow"];
        let said = text(&lab.succeeds(&power_loss).stdout);
        assert!(said.ends_with(" 0 missing\n"), "{said}");
        lab.assert_nothing_left();
    });
}

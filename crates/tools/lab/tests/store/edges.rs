//! Faults on a plain network, where each host runs the pipeline itself.

use crate::faults::{is_out, is_ready};
use crate::fixture::{LabUnderTest, text};
use crate::load::{Load, Redis};
use crate::{Victim, as_root, as_root_in_long_runs, status, wait_for};

#[test]
fn puts_go_on_when_a_host_dies_with_its_edge_and_when_edges_are_away() {
    as_root("puts_go_on_when_a_host_dies_with_its_edge_and_when_edges_are_away", || {
        let lab = LabUnderTest::up("plain", &["--fabric", "plain"]);
        lab.refuses(&["kill", "switch"], "the lab has no host");
        Load::during(&lab, |load| {
            for role in [Victim::Primary, Victim::Secondary] {
                let victim = role.of(&status(&lab)["partitions"][0]);
                let hosts = [format!("edge-node-{victim}"), format!("node-{victim}")];
                hosts.iter().for_each(|host| drop(lab.succeeds(&["kill", host])));
                wait_for(&lab, |status| is_out(status, victim));
                load.wait_for_progress();
                hosts.iter().for_each(|host| drop(lab.succeeds(&["start", host])));
                wait_for(&lab, is_ready);
                load.wait_for_progress();
            }
            // The paused edge keeps old tables: only clients on its host wait.
            lab.succeeds(&["pause", "edge-client-1"]);
            let victim = Victim::Primary.of(&status(&lab)["partitions"][0]);
            lab.succeeds(&["kill", &format!("node-{victim}")]);
            wait_for(&lab, |status| is_out(status, victim));
            lab.succeeds(&["resume", "edge-client-1"]);
            load.wait_for_progress();
            lab.succeeds(&["start", &format!("node-{victim}")]);
            wait_for(&lab, is_ready);
        });
        // Without its edge a host reaches no vring; other hosts still do.
        lab.succeeds(&["kill", "edge-client-0"]);
        let put = Redis::on(&lab, "client-0").ask(&["SET", "color", "blue"]);
        assert!(put.as_ref().is_err_and(|error| error.contains("outcome unknown")), "{put:?}");
        assert_eq!(Redis::on(&lab, "client-1").ask(&["SET", "color", "red"]), Ok("OK".into()));
        lab.succeeds(&["start", "edge-client-0"]);
        wait_for(&lab, is_ready);
        assert!(Redis::on(&lab, "client-0").ask(&["GET", "color"]).is_ok());
        lab.down();
    });
}

#[test]
fn chaos_finds_nothing_on_a_plain_network() {
    as_root_in_long_runs("chaos_finds_nothing_on_a_plain_network", || {
        // Faults on a plain network are nftables rules.
        if !nicekv_testkit::needs(&["nft"], "chaos_finds_nothing_on_a_plain_network") {
            return;
        }
        let lab = LabUnderTest::new("p");
        let output = lab.succeeds(&["chaos", "--minutes", "0.2", "--seed", "11", "--fabric", "plain"]);
        let said = text(&output.stdout);
        assert!(said.contains("--fabric plain") && said.contains("linearizable, all read back"), "{said}");
        lab.assert_nothing_left();
    });
}

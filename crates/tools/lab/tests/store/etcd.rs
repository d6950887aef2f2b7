//! Several instances of the metadata service that share an etcd cluster, while instances and
//! members of etcd are killed or paused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{LabUnderTest, text};
use crate::load::{Load, Redis};
use crate::{POLL_PAUSE, TIMEOUT, as_root, as_root_in_long_runs, inside, program, status, wait_for};

/// An outage that outlasts the leases of the leader and of the nodes.
const OUTAGE: Duration = Duration::from_secs(5);
/// A long outage.
const MINUTE: Duration = Duration::from_secs(60);

fn with_etcd(name: &str, test: impl FnOnce()) {
    as_root(name, || {
        if nicekv_testkit::needs(&["etcd"], name) {
            test();
        }
    });
}

fn with_etcd_in_long_runs(name: &str, test: impl FnOnce()) {
    as_root_in_long_runs(name, || with_etcd(name, test));
}

fn up(name: &str) -> LabUnderTest {
    LabUnderTest::up(name, &["--nodes", "3", "--metadata", "3", "--metadata-store", "etcd"])
}

fn leader(status: &Value) -> String {
    status["control_plane"]["instance"].as_str().unwrap_or_default().to_owned()
}

/// The new leader, once it is another instance and has heartbeats from all nodes.
fn wait_for_other(lab: &LabUnderTest, old: &str) -> String {
    wait_for(lab, |status| {
        let leader = leader(status);
        !leader.is_empty() && leader != old && status["ready"] == true
    });
    leader(&status(lab))
}

#[test]
fn puts_go_on_when_leaders_are_killed_and_paused() {
    with_etcd_in_long_runs("puts_go_on_when_leaders_are_killed_and_paused", || {
        let lab = up("etcd");
        Load::during(&lab, |load| {
            let first = leader(&status(&lab));
            lab.succeeds(&["kill", &first]);
            let second = wait_for_other(&lab, &first);
            load.wait_for_progress();
            lab.succeeds(&["start", &first]);
            lab.succeeds(&["pause", &second]);
            let third = wait_for_other(&lab, &second);
            let term = status(&lab)["term"].as_u64();
            lab.succeeds(&["resume", &second]);
            load.wait_for_progress();
            // The old leader is a standby now. The new one notices that a node dies.
            lab.succeeds(&["kill", "node-1"]);
            wait_for(&lab, |status| status["nodes"][1]["state"] == "suspected");
            load.wait_for_progress();
            lab.succeeds(&["start", "node-1"]);
            wait_for(&lab, |status| status["ready"] == true);
            let status = status(&lab);
            assert_eq!((leader(&status), status["term"].as_u64()), (third, term));
        });
        // Any instance redirects to the leader.
        for endpoint in ["10.20.0.2:7400", "10.20.0.3:7400", "10.20.0.4:7400"] {
            let get = ["exec", "client-0", "--", &program(), "get", "writer-0-0", "--endpoint", endpoint];
            assert_eq!(text(&lab.succeeds(&get).stdout), "0");
        }
        lab.down();
    });
}

#[test]
fn a_leader_goes_on_without_a_member_of_etcd_and_after_an_outage_of_it() {
    with_etcd_in_long_runs("a_leader_goes_on_without_a_member_of_etcd_and_after_an_outage_of_it", || {
        let lab = up("member");
        Load::during(&lab, |load| {
            for member in ["etcd-0", "etcd-1", "etcd-2"] {
                lab.succeeds(&["kill", member]);
                load.wait_for_progress();
                lab.succeeds(&["start", member]);
                wait_for(&lab, |status| {
                    status["ready"] == true && status["control_plane"]["outage"].is_null()
                });
            }
            for member in ["etcd-0", "etcd-1", "etcd-2"] {
                lab.succeeds(&["pause", member]);
            }
            std::thread::sleep(OUTAGE);
            let answer = lab.command(&["exec", "client-0", "--", &program(), "status"]).output().unwrap();
            assert_eq!(answer.status.code(), Some(2), "{answer:?}");
            let told = text(&answer.stderr);
            assert!(told.contains("does not lead") && told.contains("etcd"), "{told}");
            // Puts need no leases.
            load.wait_for_progress();
            for member in ["etcd-0", "etcd-1", "etcd-2"] {
                lab.succeeds(&["resume", member]);
            }
            wait_for(&lab, |status| status["ready"] == true);
        });
        let mut redis = Redis::on(&lab, "client-0");
        let deadline = Instant::now() + TIMEOUT;
        while redis.ask(&["GET", "writer-0-0"]).is_err() {
            assert!(Instant::now() < deadline, "gets are not answered again");
            std::thread::sleep(POLL_PAUSE);
        }
        lab.down();
    });
}

/// The value of a metric of the first instance.
fn metric(lab: &LabUnderTest, name: &str) -> f64 {
    let page = inside(lab, "metadata", || {
        let mut stream = TcpStream::connect("10.20.0.2:9464").unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    });
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

const SILENT: &str = "nicekv_metadata_store_silent_seconds";

#[test]
fn puts_continue_and_errors_name_an_etcd_that_is_silent_for_a_minute() {
    with_etcd_in_long_runs("puts_continue_and_errors_name_an_etcd_that_is_silent_for_a_minute", || {
        let lab = up("minute");
        Load::during(&lab, |load| {
            for member in ["etcd-0", "etcd-1", "etcd-2"] {
                lab.succeeds(&["pause", member]);
            }
            let begun = Instant::now();
            let mut told_s = 0.0;
            while begun.elapsed() < MINUTE {
                // Writers read what they wrote, and gets wait for leases, so writers are slow.
                // Puts wait for nothing.
                load.wait_for_puts(1);
                let silent_s = metric(&lab, SILENT);
                assert!(silent_s >= told_s, "{silent_s} after {told_s}");
                told_s = silent_s;
                let answer = lab.command(&["exec", "client-0", "--", &program(), "status"]).output().unwrap();
                let told = text(&answer.stderr);
                let is_told = answer.status.code() == Some(2) && told.contains("no answer from etcd");
                assert!(is_told || begun.elapsed() < OUTAGE, "{answer:?}");
            }
            // The metric was computed before the last request, which may have taken long.
            let silent_s = metric(&lab, SILENT);
            assert!(silent_s > (MINUTE - OUTAGE).as_secs_f64(), "{silent_s} s");
            assert_eq!(metric(&lab, "nicekv_metadata_leads") as u64, 0);
            for member in ["etcd-0", "etcd-1", "etcd-2"] {
                lab.succeeds(&["resume", member]);
            }
            wait_for(&lab, |status| status["ready"] == true && status["control_plane"]["outage"].is_null());
            load.wait_for_progress();
            // The gets of those writers are answered again, too.
            let failed = load.failed();
            load.wait_for_progress();
            assert_eq!(load.failed(), failed);
            // Another instance may lead by now. The first one notices with its next request
            // that the store answers again.
            let deadline = Instant::now() + TIMEOUT;
            while metric(&lab, SILENT) >= 1.0 {
                assert!(
                    Instant::now() < deadline,
                    "the first instance still reports that the store is silent"
                );
                std::thread::sleep(POLL_PAUSE);
            }
        });
        lab.down();
    });
}

#[test]
fn keyspaces_are_created_and_dropped_across_changes_of_the_leader() {
    with_etcd_in_long_runs("keyspaces_are_created_and_dropped_across_changes_of_the_leader", || {
        let lab = up("spaces");
        let run = |words: &[&str]| {
            let (program, endpoints) = (program(), "10.20.0.2:7400,10.20.0.3:7400,10.20.0.4:7400");
            let command = ["exec", "client-0", "--", &program];
            lab.command(&[&command, words, &["--endpoint", endpoints]].concat()).output().unwrap()
        };
        let succeeds = |words: &[&str]| {
            let output = run(words);
            assert!(output.status.success(), "{words:?}: {output:?}");
            text(&output.stdout)
        };
        Load::during(&lab, |load| {
            succeeds(&["keyspace", "create", "sessions", "--partitions", "4"]);
            succeeds(&["put", "color", "blue", "--keyspace", "sessions"]);
            let first = leader(&status(&lab));
            lab.succeeds(&["kill", &first]);
            let second = wait_for_other(&lab, &first);
            assert!(succeeds(&["keyspace", "list"]).contains("sessions"));
            assert_eq!(succeeds(&["get", "color", "--keyspace", "sessions"]), "blue");
            // The second leader creates and drops keyspaces, and the next one knows both changes.
            succeeds(&["keyspace", "create", "carts", "--partitions", "4"]);
            succeeds(&["put", "color", "red", "--keyspace", "carts"]);
            succeeds(&["keyspace", "drop", "sessions", "--yes-drop", "sessions"]);
            lab.succeeds(&["start", &first]);
            lab.succeeds(&["kill", &second]);
            wait_for_other(&lab, &second);
            let listed = succeeds(&["keyspace", "list"]);
            assert!(listed.contains("carts") && !listed.contains(" sessions "), "{listed}");
            assert_eq!(succeeds(&["get", "color", "--keyspace", "carts"]), "red");
            assert_eq!(run(&["get", "color", "--keyspace", "sessions"]).status.code(), Some(2));
            load.wait_for_progress();
        });
        lab.down();
    });
}

#[test]
fn chaos_finds_nothing_where_instances_and_members_die() {
    with_etcd_in_long_runs("chaos_finds_nothing_where_instances_and_members_die", || {
        let lab = LabUnderTest::new("ce");
        let control = ["--metadata", "3", "--metadata-store", "etcd"];
        let output = lab.succeeds(&[&["chaos", "--minutes", "0.4", "--seed", "5"][..], &control].concat());
        let said = text(&output.stdout);
        assert!(
            said.contains("--metadata-store etcd") && said.contains("linearizable, all read back"),
            "{said}"
        );
        lab.assert_nothing_left();
    });
}

#[test]
fn an_etcd_with_another_clusters_keys_is_left_alone() {
    with_etcd("an_etcd_with_another_clusters_keys_is_left_alone", || {
        let lab = LabUnderTest::up("keys", &["--nodes", "3", "--clients", "1", "--metadata-store", "etcd"]);
        let config = std::fs::read_to_string(lab.config()).unwrap();
        let before = status(&lab);
        lab.succeeds(&["kill", "metadata"]);
        let directory = tempfile::tempdir().unwrap();
        let cluster = config.lines().find(|line| line.starts_with("cluster_id")).unwrap();
        let other = directory.path().join("other.toml");
        let changed = config.replacen(cluster, &format!("cluster_id = \"{:032x}\"", 7), 1);
        std::fs::write(&other, changed).unwrap();
        let metadata =
            ["exec", "metadata", "--", &program(), "metadata", "--config", other.to_str().unwrap()];
        let refused = lab.command(&metadata).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let told = text(&refused.stderr);
        assert!(told.contains("/nicekv/cluster is ") && told.lines().count() == 1, "{told}");
        lab.succeeds(&["start", "metadata"]);
        wait_for(&lab, |status| status["ready"] == true);
        assert_eq!(status(&lab)["cluster"], before["cluster"]);
        lab.refuses(&["up", "--metadata", "2"], "--metadata-store etcd");
        lab.down();
    });
}

#[test]
fn status_names_a_dead_instance_and_kill_metadata_means_the_leader() {
    with_etcd("status_names_a_dead_instance_and_kill_metadata_means_the_leader", || {
        let lab = up("instances");
        let wrong = |lab: &LabUnderTest| -> Vec<String> {
            let shown = lab.command(&["status"]).output().unwrap();
            let lines = text(&shown.stdout);
            lines.lines().filter(|line| line.starts_with("WRONG")).map(str::to_owned).collect()
        };
        let answers = |status: &Value| {
            let peers = status["control_plane"]["peers"].as_array().unwrap();
            peers.len() == 2 && peers.iter().all(|peer| peer["silent"].is_null())
        };
        wait_for(&lab, |status| status["ready"] == true && answers(status));
        assert_eq!(wrong(&lab), [""; 0]);
        // The first instance need not be the leader.
        let first = leader(&status(&lab));
        lab.succeeds(&["kill", &first]);
        let led = wait_for_other(&lab, &first);
        lab.succeeds(&["start", &first]);
        wait_for(&lab, |status| leader(status) == led && answers(status));
        let said = text(&lab.succeeds(&["kill", "metadata"]).stdout);
        assert_eq!(said, format!("{led} (the leader)\n"));
        assert_eq!(lab.state_of(&led), "ended");
        wait_for_other(&lab, &led);
        wait_for(&lab, |status| {
            let peers = status["control_plane"]["peers"].as_array().unwrap();
            peers.iter().any(|peer| peer["name"] == led.as_str() && !peer["silent"].is_null())
        });
        let lines = wrong(&lab);
        let named = format!("WRONG: metadata instance {led} (10.20.0.");
        let line = lines.iter().find(|line| line.starts_with(&named));
        let line = line.unwrap_or_else(|| panic!("{named:?} is not in {lines:?}"));
        assert!(line.contains("2 of 3 instances are left") && line.contains("restart it"), "{line}");
        let said = text(&lab.succeeds(&["start", "metadata"]).stdout);
        assert_eq!(said, format!("{led} (not running)\n"));
        wait_for(&lab, answers);
        lab.down();
    });
}

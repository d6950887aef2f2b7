//! A keyspace is created and dropped while clients write, and a node, the switch and the metadata
//! service die.

use std::time::Instant;

use crate::fixture::LabUnderTest;
use crate::load::{Load, Redis};
use crate::{POLL_PAUSE, TIMEOUT, as_root, nicekv, succeeds, wait_for};

/// Selects the keyspace. A gateway learns of a new keyspace within half a second.
fn select(redis: &mut Redis) {
    let deadline = Instant::now() + TIMEOUT;
    while redis.ask(&["SELECT", "16"]).is_err() {
        assert!(Instant::now() < deadline, "the gateway knows the keyspace");
        std::thread::sleep(POLL_PAUSE);
    }
}

#[test]
fn a_keyspace_comes_and_goes_while_others_are_written_to() {
    as_root("a_keyspace_comes_and_goes_while_others_are_written_to", || {
        let lab = LabUnderTest::up("keyspaces", &["--nodes", "3"]);
        Load::during(&lab, |load| {
            succeeds(&lab, &["keyspace", "create", "sessions", "--partitions", "4"]);
            let mut redis = Redis::on(&lab, "client-0");
            select(&mut redis);
            assert_eq!(redis.ask(&["SET", "color", "blue"]), Ok("OK".into()));
            assert_eq!(succeeds(&lab, &["get", "color", "--keyspace", "sessions"]), "blue");
            for host in ["node-1", "switch", "metadata"] {
                lab.succeeds(&["kill", host]);
                lab.succeeds(&["start", host]);
                wait_for(&lab, |status| status["ready"] == true);
                assert_eq!(succeeds(&lab, &["get", "color", "--keyspace", "sessions"]), "blue", "{host}");
            }
            load.wait_for_progress();
            let refused = nicekv(&lab, &["keyspace", "drop", "sessions", "--yes-drop", "session"]);
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert_eq!(succeeds(&lab, &["get", "color", "--keyspace", "sessions"]), "blue");
            succeeds(&lab, &["keyspace", "drop", "sessions", "--yes-drop", "sessions"]);
            assert_eq!(nicekv(&lab, &["get", "color", "--keyspace", "sessions"]).status.code(), Some(2));
            load.wait_for_progress();
        });
        // A new keyspace with the same name is another keyspace.
        succeeds(&lab, &["keyspace", "create", "sessions", "--partitions", "4"]);
        assert_eq!(nicekv(&lab, &["get", "color", "--keyspace", "sessions"]).status.code(), Some(1));
        lab.down();
    });
}

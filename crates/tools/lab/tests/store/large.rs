//! Values that are too long for a datagram, on real links, while replicas die.

use crate::faults::is_ready;
use crate::fixture::{LabUnderTest, text};
use crate::load::Redis;
use crate::{as_root, partition_of, status, wait_for};

const BYTES: usize = 3 << 20;

/// A long value without repetitions.
fn value(seed: usize) -> String {
    let mut state = seed as u64 | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    (0..BYTES / 16).map(|_| word()).collect()
}

#[test]
fn large_values_are_put_while_replicas_die_and_datagrams_are_lost() {
    as_root("large_values_are_put_while_replicas_die_and_datagrams_are_lost", || {
        let lab = LabUnderTest::up("large", &[]);
        let mut acknowledged = Vec::new();
        let mut redis = Redis::on(&lab, "client-0");
        let mut put = |number: usize| {
            let key = format!("large-{number}");
            if redis.ask(&["SET", &key, &value(number)]) == Ok("OK".into()) {
                acknowledged.push(number);
            }
        };
        put(0);
        for (number, is_primary) in [(1, false), (2, true)] {
            let partition = partition_of(&status(&lab), &format!("large-{number}"));
            let primary = partition["primary"].as_u64().unwrap();
            let members = partition["members"].as_array().unwrap();
            let mut nodes = members.iter().filter_map(|member| member["node"].as_u64());
            let victim = if is_primary { primary } else { nodes.find(|node| *node != primary).unwrap() };
            let name = format!("node-{victim}");
            std::thread::scope(|scope| {
                let kill = scope.spawn(|| lab.succeeds(&["kill", &name]));
                put(number);
                kill.join().unwrap();
            });
            lab.succeeds(&["start", &name]);
            wait_for(&lab, is_ready);
        }
        lab.succeeds(&["loss", "20"]);
        put(3);
        lab.succeeds(&["loss", "0"]);
        wait_for(&lab, is_ready);
        // Through another host, other members answer, including the one that copied what was put in
        // its absence.
        let mut other = Redis::on(&lab, "client-1");
        for number in &acknowledged {
            for redis in [&mut redis, &mut other] {
                let got = redis.ask(&["GET", &format!("large-{number}")]);
                assert!(got == Ok(value(*number)), "large-{number} differs from what was put");
            }
        }
        assert!(acknowledged.len() >= 3, "of four puts {acknowledged:?} were acknowledged");
        lab.down();
    });
}

/// Jumbo frames are for other traffic, also for TCP between nodes; frames of the store stay within
/// 1500 bytes.
#[test]
fn links_with_jumbo_frames_carry_large_values() {
    as_root("links_with_jumbo_frames_carry_large_values", || {
        let arguments =
            ["--nodes", "3", "--clients", "1", "--engine", "memory", "--switch", "tc", "--mtu", "9000"];
        let lab = LabUnderTest::up("jumbo", &arguments);
        for host in ["node-2", "client-0"] {
            let link = text(&lab.succeeds(&["exec", host, "--", "ip", "link", "show", "eth0"]).stdout);
            assert!(link.contains(" mtu 9000 "), "{link}");
        }
        let mut redis = Redis::on(&lab, "client-0");
        assert_eq!(redis.ask(&["SET", "large", &value(1)]), Ok("OK".into()));
        assert!(redis.ask(&["GET", "large"]) == Ok(value(1)));
        // A member copies by TCP what it lacks.
        lab.succeeds(&["kill", "node-0"]);
        wait_for(&lab, |status| !is_ready(status));
        lab.succeeds(&["start", "node-0"]);
        wait_for(&lab, is_ready);
        assert!(redis.ask(&["GET", "large"]) == Ok(value(1)));
        lab.down();
    });
}

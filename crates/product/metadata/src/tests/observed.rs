//! Observations, to the nanosecond: which node is live and for how long, and which node accuses
//! which. (`switches` tests which switch has the newest tables.) The cluster tests show that
//! nothing wrong follows from observations; these tests check the exact times.

use std::time::Duration;

use nicekv_proto::control::{AssignAck, DiskSpace, Heartbeat, ProbeReply};
use nicekv_proto::{Epoch, NodeId, PartitionId};

use super::cluster::config;
use crate::config::{Config, Timing};
use crate::observe::{Membership, Watch};
use crate::state::Process;

const MS: u64 = 1_000_000;
const START: u64 = 1_000 * MS;
const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

#[test]
fn periods_follow_from_the_configuration() {
    let timing = Timing::default();
    assert_eq!(timing.suspicion_ns(), 3 * 40 * MS + 5 * MS);
    assert_eq!(timing.doubt_ns(), 60 * MS);
    // R12: the wait allows for a clock that is slower by an eighth, rounded up.
    assert_eq!(timing.lease_wait_ns(), 150 * MS + 18_750_000);
    let odd = Timing { lease: Duration::from_nanos(10), drift_divisor: 3, ..timing };
    assert_eq!(odd.lease_wait_ns(), 14);
    assert_eq!(timing.grace_ns(), 400 * MS);
    assert_eq!(timing.tick_ns(), 10 * MS);
}

fn heartbeat(node: NodeId, incarnation: u64, unanswered: u16) -> Heartbeat {
    Heartbeat {
        node,
        unanswered,
        space: DiskSpace::Enough,
        incarnation,
        storage: 5,
        sent_ns: 0,
        opened: 0,
        durable: 0,
    }
}

#[test]
fn every_count_and_period_must_be_positive() {
    let refused = |timing| Config { timing, ..config(3, 3) }.validate().is_err();
    let (usual, zero) = (Timing::default(), Duration::ZERO);
    assert!(!refused(usual));
    for timing in [
        Timing { heartbeats_missed: 0, ..usual },
        Timing { drift_divisor: 0, ..usual },
        Timing { grace_heartbeats: 0, ..usual },
        Timing { probe_tries: 0, ..usual },
        Timing { probe: zero, ..usual },
        Timing { probe_idle: zero, ..usual },
        Timing { accusation_timeout: zero, ..usual },
        Timing { rejoin_delay: zero, ..usual },
        Timing { switch_interval: zero, ..usual },
        Timing { heartbeat: Duration::from_nanos(3), ..usual },
        Timing { lease: usual.heartbeat, ..usual },
    ] {
        assert!(refused(timing), "{timing:?}");
    }
}

#[test]
fn probe_reply_matches_only_its_own_probe() {
    let nonces = |term: u64| {
        let mut membership = Membership::new(&config(3, 3), term, START);
        (1..=3).map(NodeId).for_each(|node| membership.probe(node, START));
        membership.take_probes().into_iter().map(|(_, nonce)| nonce).collect::<Vec<_>>()
    };
    let [former, ours] = [6, 7].map(nonces);
    assert!(
        ours.is_sorted() && former.is_sorted() && former[2] < 7 << 32 && 7 << 32 < ours[0],
        "{former:?} {ours:?}"
    );
}

/// Replies to all probes that are due, as these processes. Returns the nodes that were probed.
fn answer(membership: &mut Membership, now_ns: u64, incarnation: u64) -> Vec<NodeId> {
    let probes = membership.take_probes();
    for (node, nonce) in &probes {
        let reply = ProbeReply { incarnation, nonce: *nonce, node: *node };
        if let Some(heartbeat) = membership.handle_probe_reply(now_ns, &reply) {
            membership.admit(&heartbeat, 5);
        }
    }
    probes.into_iter().map(|(node, _)| node).collect()
}

/// Membership in which node 1 is live since the start.
fn membership() -> Membership {
    let mut membership = Membership::new(&config(3, 3), 1, START);
    membership.handle_heartbeat(START, &heartbeat(NODE, 7, 0));
    assert_eq!(membership.live(NODE), None, "a heartbeat may be from the past");
    assert_eq!(answer(&mut membership, START, 7), [NODE]);
    assert_eq!(membership.live(NODE), Some(Process { incarnation: 7, storage: 5 }));
    membership
}

#[test]
fn silent_node_is_probed_and_then_suspected() {
    let mut membership = membership();
    assert_eq!(membership.next_suspicion_ns(), Some(START + 125 * MS));
    membership.tick(START + 60 * MS - 1);
    assert_eq!(membership.take_probes(), []);
    membership.tick(START + 60 * MS);
    assert_eq!(membership.take_probes().len(), 1);
    // The probe is repeated every ten milliseconds.
    membership.tick(START + 70 * MS - 1);
    assert_eq!(membership.take_probes(), []);
    membership.tick(START + 70 * MS);
    assert_eq!(membership.take_probes().len(), 1);
    membership.tick(START + 125 * MS - 1);
    assert!(membership.is_live(NODE, 7) && !membership.is_live(NODE, 8));
    assert_eq!(membership.silent_since_ns(NODE), START);
    membership.tick(START + 125 * MS);
    assert_eq!((membership.live(NODE), membership.silent_since_ns(NODE)), (None, START + 125 * MS));
    assert!(membership.is_known(NODE) && !membership.is_known(OTHER));
}

#[test]
fn probe_attempts_are_bounded() {
    // Heartbeats arrive, but replies to probes do not.
    let mut membership = membership();
    let due = START + 1_000 * MS + 1;
    membership.handle_heartbeat(due, &heartbeat(NODE, 7, 0));
    membership.tick(due);
    let mut tries = membership.take_probes().len();
    for step in 1..=12 {
        let now_ns = due + step * 10 * MS;
        assert!(membership.is_live(NODE, 7), "{step}");
        membership.handle_heartbeat(now_ns, &heartbeat(NODE, 7, 0));
        membership.tick(now_ns);
        tries += membership.take_probes().len();
    }
    assert_eq!((tries, membership.live(NODE)), (12, None));
}

#[test]
fn deaf_node_is_suspected_at_its_third_unanswered_heartbeat() {
    for (unanswered, probed_ms, is_live) in [(3, 40, false), (2, 40, true), (3, 39, true), (4, 41, false)] {
        let mut membership = membership();
        membership.handle_heartbeat(START + 80 * MS, &heartbeat(NODE, 7, 1));
        assert_eq!(membership.take_probes().len(), 1, "probed at once");
        membership.handle_heartbeat(START + (80 + probed_ms) * MS, &heartbeat(NODE, 7, unanswered));
        assert_eq!(membership.live(NODE).is_some(), is_live, "{unanswered} {probed_ms}");
        assert_eq!(membership.take_probes(), [], "a probe is outstanding");
    }
}

#[test]
fn other_nodes_are_probed_when_one_falls_silent() {
    let mut membership = membership();
    membership.handle_heartbeat(START, &heartbeat(OTHER, 8, 0));
    assert_eq!(answer(&mut membership, START, 8), [OTHER]);
    let heartbeat = |membership: &mut Membership, node, now_ns| {
        membership.handle_heartbeat(now_ns, &heartbeat(node, if node == NODE { 7 } else { 8 }, 0));
    };
    for ms in [40, 80, 120] {
        heartbeat(&mut membership, OTHER, START + ms * MS);
    }
    membership.tick(START + 125 * MS);
    assert_eq!(membership.live(NODE), None);
    assert_eq!(answer(&mut membership, START + 126 * MS, 8), [OTHER], "the others may have died with it");
    assert!(membership.is_proven_since(OTHER, START + 125 * MS));
    assert!(
        !membership.is_proven_since(OTHER, START + 125 * MS + 1) && !membership.is_proven_since(NODE, START)
    );
    let idle_until = START + 1_125 * MS;
    heartbeat(&mut membership, OTHER, idle_until);
    membership.tick(idle_until);
    assert_eq!(membership.take_probes(), []);
    membership.tick(idle_until + 1);
    assert_eq!(membership.take_probes().len(), 1);
}

#[test]
fn lease_ends_by_the_slowest_clock() {
    let mut membership = membership();
    let wait_ns = Timing::default().lease_wait_ns();
    membership.grant(NODE, START + 50 * MS);
    let over = |membership: &Membership, incarnation, since_ns: u64| {
        let is_over = |now_ns| membership.lease_is_over(NODE, incarnation, now_ns);
        assert!(!is_over(since_ns + wait_ns - 1) && is_over(since_ns + wait_ns), "{incarnation}");
    };
    over(&membership, 7, START + 50 * MS);
    over(&membership, 6, START);
    // A new process replaces the former one, whose lease is remembered.
    membership.handle_heartbeat(START + 60 * MS, &heartbeat(NODE, 9, 0));
    answer(&mut membership, START + 60 * MS, 9);
    over(&membership, 7, START + 50 * MS);
    membership.grant(NODE, START + 90 * MS);
    over(&membership, 9, START + 90 * MS);
    over(&membership, 7, START + 50 * MS);
    assert!(membership.lease_is_over(NodeId(99), 1, 0), "an unknown node");
}

#[test]
fn only_the_process_that_was_asked_answers() {
    let mut membership = membership();
    membership.handle_heartbeat(START + 10 * MS, &heartbeat(NODE, 9, 0));
    let [(node, nonce)] = membership.take_probes()[..] else { panic!("one probe") };
    let reply = |incarnation, nonce| ProbeReply { incarnation, nonce, node };
    for wrong in [reply(8, nonce), reply(9, nonce + 1)] {
        membership.handle_probe_reply(START + 11 * MS, &wrong);
        assert!(membership.is_live(NODE, 7));
    }
    let heartbeat = membership.handle_probe_reply(START + 11 * MS, &reply(9, nonce));
    membership.admit(&heartbeat.expect("a reply of the process that was probed"), 5);
    assert!(membership.is_live(NODE, 9));
    // A reply to a probe counts as a heartbeat.
    assert_eq!(membership.next_suspicion_ns(), Some(START + 136 * MS));
}

fn full(membership: &mut Membership, now_ns: u64, space: DiskSpace) {
    membership.handle_heartbeat(now_ns, &Heartbeat { space, ..heartbeat(NODE, 7, 0) });
}

#[test]
fn free_space_is_the_last_report_of_the_live_process() {
    let mut membership = membership();
    full(&mut membership, START + MS, DiskSpace::Reserve);
    assert_eq!((membership.space(NODE), membership.space(OTHER)), (DiskSpace::Reserve, DiskSpace::Enough));
    let foreign = Heartbeat { space: DiskSpace::Exhausted, ..heartbeat(NODE, 9, 0) };
    membership.handle_heartbeat(START + 2 * MS, &foreign);
    assert_eq!(membership.space(NODE), DiskSpace::Reserve);
    answer(&mut membership, START + 3 * MS, 9);
    assert_eq!(membership.space(NODE), DiskSpace::Exhausted);
}

fn ack(incarnation: u64, epoch: u32, activated: bool) -> AssignAck {
    AssignAck {
        partition: PartitionId(0),
        epoch: Epoch(epoch),
        incarnation,
        node: NODE,
        activated,
        discarded: false,
    }
}

#[test]
fn acknowledgement_is_news_once_and_never_decreases() {
    let mut watch = Watch::default();
    watch.handle_sent(NODE, START);
    assert!(watch.is_outstanding(NODE, START + 9, 10) && !watch.is_outstanding(NODE, START + 10, 10));
    assert!(!watch.is_outstanding(OTHER, START, 10));
    for (new, is_news) in [
        (ack(7, 3, false), true),
        (ack(7, 3, false), false),
        (ack(7, 3, true), true),
        (ack(7, 2, true), false),
        (ack(7, 3, false), false),
        (ack(7, 4, false), true),
        (ack(8, 2, false), true),
    ] {
        assert_eq!(watch.handle_ack(&new), is_news, "{new:?}");
        assert!(!watch.is_outstanding(NODE, START, 10));
    }
    let known = watch.acknowledged(NODE, 8).map(|known| (known.epoch, known.activated));
    assert_eq!(
        (known, watch.acknowledged(NODE, 7), watch.acknowledged(OTHER, 8)),
        (Some((2, false)), None, None)
    );
    assert!(watch.handle_copy_done(NODE, 7, 3) && !watch.handle_copy_done(NODE, 7, 3));
    assert!(watch.copied(NODE, 7, 3) && !watch.copied(NODE, 7, 4) && !watch.copied(OTHER, 7, 3));
    watch.bar(NODE, START);
    assert!(watch.is_barred(NODE, START - 1) && !watch.is_barred(NODE, START) && !watch.is_barred(OTHER, 0));
}

#[test]
fn dark_partition_is_settled_when_members_are_live_or_timed_out() {
    let timing = Timing::default();
    let mut watch = Watch::dark(START);
    assert!(!watch.is_settled());
    watch.settle(true, false, START, &timing);
    watch.settle(true, false, START + 400 * MS - 1, &timing);
    assert!(!watch.is_settled());
    // All members are lost again: the grace period begins anew.
    watch.settle(false, false, START + 400 * MS - 1, &timing);
    watch.settle(true, false, START + 400 * MS, &timing);
    watch.settle(true, false, START + 800 * MS - 1, &timing);
    assert!(!watch.is_settled());
    watch.settle(true, false, START + 800 * MS, &timing);
    assert!(watch.is_settled());
    let mut watch = Watch::dark(START);
    watch.settle(true, true, START, &timing);
    assert!(watch.is_settled());
    watch.note_whole(true, 5);
    watch.note_whole(true, 6);
    assert_eq!(watch.whole_since_ns(), Some(5));
    watch.note_whole(false, 7);
    assert_eq!(watch.whole_since_ns(), None);
}

/// Membership in which three nodes are live, and were proven to be at these times.
fn proven(at_ns: [u64; 3]) -> Membership {
    let mut membership = Membership::new(&config(3, 3), 1, 0);
    for (node, at_ns) in (1..).map(NodeId).zip(at_ns) {
        membership.handle_heartbeat(at_ns, &heartbeat(node, node.0.into(), 0));
        answer(&mut membership, at_ns, node.0.into());
    }
    membership
}

#[test]
fn accused_member_is_removed_unless_it_leads_and_one_complains() {
    let timing = Timing::default();
    let [one, two, three] = [1, 2, 3].map(NodeId);
    let late = proven([START + 1; 3]);
    for (accusations, primary, expelled) in [
        (&[(two, one)][..], two, Some(one)),
        (&[(two, one)], one, Some(two)),
        (&[(two, one), (three, one)], one, Some(one)),
        (&[(two, one), (three, one), (one, two)], two, Some(one)),
        (&[], one, None),
    ] {
        let mut watch = Watch::default();
        for (accuser, accused) in accusations {
            for ms in [0, 250, 499, 500] {
                let before = watch.expelled(primary, &late, &timing);
                assert!(before.is_none() || accusations.len() > 1, "{ms}");
                assert_eq!(watch.accuse(*accuser, *accused, START + ms * MS, &timing), START);
            }
        }
        assert_eq!(watch.expelled(primary, &late, &timing), expelled, "{accusations:?} {primary:?}");
        // Neither is removed unless both have proven since then that they are live.
        for unproven in 0..2 {
            let mut at_ns = [START + 1; 3];
            at_ns[unproven] = START - 1;
            let expelled = watch.expelled(primary, &proven(at_ns), &timing);
            assert!(expelled.is_none() || accusations.len() > 1, "{expelled:?}");
        }
    }
}

#[test]
fn expired_accusation_begins_anew() {
    let timing = Timing::default();
    let mut watch = Watch::default();
    assert_eq!(watch.accuse(OTHER, NODE, START, &timing), START);
    assert_eq!(watch.accuse(OTHER, NODE, START + 500 * MS - 1, &timing), START);
    assert_eq!(watch.accuse(OTHER, NODE, START + 1_000 * MS - 1, &timing), START + 1_000 * MS - 1);
    assert_eq!(watch.expelled(OTHER, &proven([START + 2_000 * MS; 3]), &timing), None);
}

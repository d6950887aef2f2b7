//! A leader is paused, and continues while another one leads (docs/FAULTS.md rows 20 and 24; R12,
//! R13).

use nicekv_proto::control::{DiskSpace, Heartbeat, HeartbeatReply};
use nicekv_proto::{Datagram, Duration, NodeId, Now, PartitionId};

use super::cluster::{Cluster, config};
use super::node::{address, encode};
use crate::{Metadata, StorageRequest};

const NODE: NodeId = NodeId(1);

/// Everything that the leader sends at `now` after a heartbeat of a live node: heartbeat replies,
/// and the number of other messages.
fn says(core: &mut Metadata, cluster: &Cluster, now: Now) -> (Vec<HeartbeatReply>, usize) {
    let process = cluster.nodes[&NODE].running.as_ref().unwrap().process;
    let (incarnation, storage, sent_ns) = (process.incarnation, process.storage, now.boot_ns);
    let heartbeat = Heartbeat {
        node: NODE,
        incarnation,
        storage,
        sent_ns,
        unanswered: 0,
        space: DiskSpace::Enough,
        opened: 0,
        durable: 0,
    };
    core.handle_datagram(now, address(NODE), &encode(|out| heartbeat.encode(out)));
    core.handle_batch_end(now);
    let (mut replies, mut others, mut bytes) = (Vec::new(), 0, Vec::new());
    while core.poll_transmit(&mut bytes).is_some() {
        match Datagram::decode(&bytes).unwrap().1 {
            Datagram::HeartbeatReply(reply) => replies.push(reply),
            _ => others += 1,
        }
    }
    while core.poll_switch().is_some() {
        others += 1;
    }
    (replies, others)
}

#[test]
fn leader_is_silent_beyond_its_own_lease() {
    let mut cluster = Cluster::new(config(3, 3), 1);
    cluster.run_until_ready(200);
    cluster.run(100);
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    let mut leader = cluster.core().clone();
    leader.handle_leadership(now, now.boot_ns + 100_000_000);
    let (replies, _) = says(&mut leader, &cluster, now);
    assert!(replies.len() == 1 && replies[0].lease_ns > 0, "{replies:?}");

    // The leader was paused. It checks the time before it sends anything.
    let late = now.after(Duration::from_millis(100));
    let late = Now { boot_ns: late, unix_ms: 0 };
    leader.handle_deadline(late);
    assert_eq!(says(&mut leader, &cluster, late), (Vec::new(), 0));
    assert_eq!(leader.status().why_not_ready.as_deref(), Some("another metadata service may lead"));

    // No other instance has taken the lease, so it is renewed.
    leader.handle_leadership(late, late.boot_ns + 100_000_000);
    assert_eq!(says(&mut leader, &cluster, late).0.len(), 1);
}

/// The next step of an old leader follows a state that another leader has replaced, so its
/// compare-and-swap fails.
#[test]
fn steps_of_two_leaders_exclude_each_other() {
    let mut cluster = Cluster::new(config(3, 3), 1);
    cluster.run_until_ready(200);
    let mut old = cluster.core().clone();
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run(30);
    let stored = crate::persisted_version(cluster.stored.as_deref().unwrap()).unwrap();

    // The old leader was paused. Then it receives from only one node, and suspects the others.
    let mut now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    let mut proposed = None;
    for step in 0..200 {
        now.boot_ns += 1_000_000;
        if step % 40 == 0 {
            says(&mut old, &cluster, now);
        }
        if let Some(reply) = probe_reply(&mut old, &cluster, now) {
            old.handle_datagram(now, address(NODE), &reply);
        }
        old.handle_deadline(now);
        old.handle_batch_end(now);
        proposed = proposed.or(old.poll_storage());
    }
    let Some(StorageRequest::Persist { version, bytes }) = proposed else {
        panic!("the old leader has proposed no step")
    };
    assert!(version <= stored, "version {version} would follow the stored {stored}");
    let stale = crate::state::State::resume(&cluster.config, &bytes).unwrap();
    assert!(stale.partition(PartitionId(0)).unwrap().epoch > 1, "the step removes a member");
    // It has sent nothing about this step, and a switch that has obeyed the newer term refuses the
    // requests that it repeats.
    while let Some((id, request)) = old.poll_switch() {
        let reply = cluster.switches.get_mut(&id).unwrap().handle(request);
        assert!(matches!(reply, nicekv_switch::control::ControlReply::Refused { .. }), "{reply:?}");
    }
}

/// The reply of the one node that still answers the old leader, if the leader probes it.
fn probe_reply(old: &mut Metadata, cluster: &Cluster, now: Now) -> Option<Vec<u8>> {
    let incarnation = cluster.nodes[&NODE].running.as_ref()?.process.incarnation;
    let (mut bytes, mut reply) = (Vec::new(), None);
    old.handle_batch_end(now);
    while let Some(to) = old.poll_transmit(&mut bytes) {
        if let (true, Datagram::Probe(probe)) = (to == address(NODE), Datagram::decode(&bytes).unwrap().1) {
            let answer = nicekv_proto::control::ProbeReply { node: NODE, incarnation, nonce: probe.nonce };
            reply = Some(encode(|out| answer.encode(out)));
        }
    }
    reply
}

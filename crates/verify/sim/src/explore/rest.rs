//! The end of a run: all faults are healed, all messages delivered, then every member is read.

use super::world::{KEY, NOW, World};
use crate::checker::{self, Action, Answer};
use nicekv_proto::placement::key_digest;
use nicekv_proto::{ClientId, Datagram, Get, KeyspaceId, Now, OpId, PartitionId};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bound on the rounds to come to rest; a healthy cluster needs fewer.
const ROUNDS_MAX: u64 = 40;
/// Rounds that a restarted member needs: it syncs what it found, reports that to the primary, and
/// learns that all members have it.
const SETTLING_ROUNDS: u64 = 3;
const SECOND_NS: u64 = 1_000_000_000;
const READER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, 99), 1);

/// Brings the world to rest. Returns the history with a final get at every member, or what is
/// wrong.
pub(super) fn bring_to_rest(mut world: World) -> Result<Vec<checker::Call>, String> {
    let down: Vec<usize> =
        world.roles.members.iter().copied().filter(|index| world.machines[*index].core.is_none()).collect();
    for index in down {
        // A node with the last copy of the data cannot be removed; it restarts.
        if world.roles.members.len() > 1 {
            world.remove(index);
        } else {
            world.restart(index);
        }
    }
    if world.is_chain() {
        for _ in 0..ROUNDS_MAX {
            if world.may_activate() || world.roles.activated || !world.deliver_all() {
                break;
            }
            world.announce();
        }
    }
    world.activate();
    let mut rounds: u64 = 0;
    while rounds < SETTLING_ROUNDS || !is_at_rest(&world) {
        rounds += 1;
        if rounds > ROUNDS_MAX {
            return Err(format!("no progress (V): {}", describe(&world)));
        }
        for client in world.unanswered() {
            let asked = if world.is_chain() { world.tail() } else { world.roles.members[0] };
            world.request(client, asked);
        }
        for index in world.roles.members.clone() {
            // Advances the time, so that everything with a deadline is sent now.
            let now = Now { boot_ns: NOW.boot_ns + rounds * SECOND_NS, ..NOW };
            world.act(index, |core, _| core.handle_deadline(now));
        }
        if !world.deliver_all() {
            return Err("messages do not end (V)".into());
        }
    }
    let mut calls = world.calls().to_vec();
    let readers = if world.is_chain() { vec![world.tail()] } else { world.roles.members.clone() };
    for index in readers {
        calls.push(read(&mut world, index)?);
    }
    let values = |index: usize| world.machines[index].disk.values(PartitionId(0)).collect::<Vec<_>>();
    if world.roles.members.windows(2).any(|pair| values(pair[0]) != values(pair[1])) {
        return Err(format!("members differ (C): {}", describe(&world)));
    }
    Ok(canonical(calls))
}

fn is_at_rest(world: &World) -> bool {
    let open = |index: &usize| {
        world.machines[*index]
            .core
            .as_ref()
            .is_some_and(|core| core.status().partitions.iter().any(|status| status.open_ops > 0))
    };
    world.unanswered().is_empty() && !world.roles.members.iter().any(open)
}

fn describe(world: &World) -> String {
    let line =
        |index: &usize| format!("\n  {:?}", world.machines[*index].core.as_ref().map(|core| core.status()));
    world.roles.members.iter().map(line).collect()
}

/// Reads at one member, after all other calls.
fn read(world: &mut World, index: usize) -> Result<checker::Call, String> {
    let op = OpId { client: ClientId(99), sequence: 1 };
    let mut bytes = Vec::new();
    Get {
        keyspace: KeyspaceId::DEFAULT,
        op,
        digest: key_digest(KEY),
        reply_to: Some(READER),
        forwarded: None,
        key: KEY,
        padding: 0,
    }
    .encode(&mut bytes);
    let mut machine = (*world.machines[index]).clone();
    let core = machine.core.as_mut().expect("a member at rest is up");
    core.handle_datagram(NOW, READER, &bytes);
    machine.disk.execute(NOW, core);
    while let Some(to) = core.poll_transmit(&mut bytes) {
        if to == READER
            && let Ok((_, Datagram::Reply(reply))) = Datagram::decode(&bytes)
        {
            let value = reply.value.map(<[u8]>::to_vec);
            let answer =
                Answer { status: reply.status, version: reply.version, integer: 0, value, form: reply.form };
            return Ok(checker::Call {
                action: Action::Get,
                called: u64::MAX - 1,
                answered: Some((u64::MAX, answer)),
            });
        }
    }
    Err(format!("node {index} does not answer a get (V): {}", describe(world)))
}

/// Replaces the times of calls by the smallest ones in the same order, so that equal histories are
/// equal.
fn canonical(mut calls: Vec<checker::Call>) -> Vec<checker::Call> {
    let mut times: Vec<u64> = calls
        .iter()
        .flat_map(|call| [Some(call.called), call.answered.as_ref().map(|(at, _)| *at)])
        .flatten()
        .collect();
    times.sort_unstable();
    times.dedup();
    let place = |time: u64| times.binary_search(&time).expect("one of them") as u64;
    for call in &mut calls {
        call.called = place(call.called);
        if let Some((at, _)) = &mut call.answered {
            *at = place(*at);
        }
    }
    calls
}

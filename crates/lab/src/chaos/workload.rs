//! What the clients of a phase do: random operations on the keys of that phase, with the history taken down.
//!
//! Half of the keys belong to the native clients, who compare versions; the other half is shared with Redis clients, who are not told
//! any, so that there nobody's answer counts as having told one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nicekv_history::model::{Change, When};
use nicekv_history::random::Random;
use nicekv_history::{Action, Answer, Call};
use nicekv_wire::OpId;

use crate::clients::Client;
use crate::error::Result;

/// Keys of a phase.
pub(crate) const KEYS: usize = 128;
/// Of these many keys of either half, every third call is to one: so that calls meet.
const HOT_KEYS: u64 = 4;
/// Longest pause of a client between two calls: bounds the length of histories.
const PAUSE_US_MAX: u64 = 8_000;

/// A call and the index of its key.
pub(crate) type KeyCall = (usize, Call);

/// The name of a key.
pub(crate) fn key(seed: u64, phase: u32, index: usize) -> Vec<u8> {
    format!("chaos-{seed}-{phase}-{index}").into_bytes()
}

/// Even ones compare versions.
fn has_versions(index: usize) -> bool {
    index.is_multiple_of(2)
}

/// Makes calls until it is stopped; all of them.
pub(crate) fn run(
    client: &mut Client,
    number: u64,
    random: &mut Random,
    name: impl Fn(usize) -> Vec<u8>,
    stopped: &AtomicBool,
) -> Result<Vec<KeyCall>> {
    let mut calls = Vec::new();
    let mut seen: BTreeMap<usize, OpId> = BTreeMap::new();
    while !stopped.load(Ordering::Relaxed) {
        let index = draw_key(client, random);
        let version = seen.get(&index).copied().unwrap_or(OpId::NONE);
        let value = (number * 1_000_000 + calls.len() as u64).to_string().into_bytes();
        let call = call(client, &name(index), index, draw(client, index, version, value, random))?;
        if let Some((_, answer)) = &call.answered {
            seen.insert(index, answer.version);
        }
        calls.push((index, call));
        std::thread::sleep(Duration::from_micros(random.below(PAUSE_US_MAX)));
    }
    Ok(calls)
}

/// Makes one call; versions are not told for keys without.
pub(crate) fn call(client: &mut Client, key: &[u8], index: usize, action: Action) -> Result<Call> {
    let mut call = client.call(key, action)?;
    if let Some((_, answer)) = call.answered.as_mut().filter(|_| !has_versions(index)) {
        answer.version = Answer::VERSION_NOT_TOLD;
    }
    Ok(call)
}

fn draw_key(client: &Client, random: &mut Random) -> usize {
    let half = KEYS as u64 / 2;
    let choice = if random.below(3) == 0 { HOT_KEYS } else { half };
    let place = random.below(choice) as usize;
    let shared = !client.is_told_versions() || random.below(3) == 0;
    2 * place + usize::from(shared)
}

fn draw(client: &Client, index: usize, version: OpId, value: Vec<u8>, random: &mut Random) -> Action {
    let change = match random.below(10) {
        0..3 => return Action::Get,
        3..6 => Change::Set(value),
        6 => Change::Delete,
        7 => Change::Append(b"7".to_vec()),
        _ => Change::Increment(1),
    };
    let is_set = matches!(change, Change::Set(_));
    let (condition, return_old) = match random.below(6) {
        0 if is_set => (When::IfAbsent, false),
        1 if is_set => (When::IfPresent, false),
        2 if is_set => (When::Always, true),
        3 if has_versions(index) && client.is_told_versions() => (When::IfVersion(version), false),
        _ => (When::Always, false),
    };
    Action::Update { op: OpId::NONE, condition, return_old, change }
}

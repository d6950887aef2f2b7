//! The clients of a phase: random operations on the keys of that phase, and their history.
//!
//! Every keyspace has the same keys, so that a mix-up of keyspaces is detected. Half of the keys
//! belong to native clients, which compare versions. The other half is shared with Redis clients,
//! which get no versions, so the history of these keys has none. Keyspaces by quorum get only the
//! operations that they support (R14); those with balancing=hot get mostly gets, of few keys. An
//! eighth of the keys have values of 1 B to 4 MiB, in chains of up to 32 KiB. Histories store these
//! values shortened ([`long_values`]), and clients only set, get and delete them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nicekv_history::model::{Change, When};
use nicekv_history::{Action, Answer, Call};
use nicekv_proto::placement::{KeyspaceSpec, LoadBalancing, Protocol};
use nicekv_proto::{OpId, Status};
use nicekv_testkit::Random;

use super::long_values::{self, Lengths};
use crate::clients::Client;
use crate::error::Result;

/// Keys of a phase in each keyspace.
pub(crate) const KEYS: usize = 128;
/// Every third call is to one of the first keys of either half, this many, so that calls conflict.
const HOT_KEYS: u64 = 4;
/// Gets among ten calls to a keyspace with balancing=hot. Some of the other calls are gets, too.
const HOT_GETS_OF_TEN: u64 = 8;
/// One key in this many, of either half, has long values.
const LARGE_EVERY: usize = 8;
/// Average number of calls of a client between two scans of all keys.
const CALLS_PER_SCAN: u64 = 400;
/// Longest pause of a client between two calls. Pauses keep histories short.
const PAUSE_US_MAX: u64 = 8_000;

/// A key of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index of the keyspace in the lab.
    pub(crate) keyspace: usize,
    /// Index of the key in the keyspace.
    pub(crate) index: usize,
}

impl Key {
    /// Whether the key's answers are compared by version: those with an even index are.
    fn has_versions(self) -> bool {
        self.index.is_multiple_of(2)
    }
}

/// A call and its key.
pub(crate) type KeyCall = (Key, Call);

/// The keys of a phase.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) seed: u64,
    pub(crate) phase: u32,
    /// The keyspaces of the lab.
    pub(crate) keyspaces: &'a [KeyspaceSpec],
}

impl Keys<'_> {
    /// Every key.
    pub(crate) fn all(self) -> impl Iterator<Item = Key> {
        (0..self.keyspaces.len()).flat_map(|keyspace| (0..KEYS).map(move |index| Key { keyspace, index }))
    }

    /// The name of a key, without its keyspace.
    fn name(self, key: Key) -> String {
        format!("chaos-{}-{}-{}", self.seed, self.phase, key.index)
    }

    /// The name of a key, unique among all keyspaces.
    pub(crate) fn full_name(self, key: Key) -> String {
        format!("{}-{}", self.keyspaces[key.keyspace].name, self.name(key))
    }

    /// Makes one call. Removes the version from the answer if the key is compared without.
    pub(crate) fn call(self, client: &mut Client, key: Key, action: Action) -> Result<Call> {
        let (keyspace, name) = (self.keyspaces[key.keyspace].id, self.name(key));
        let mut call = match self.lengths(key) {
            Some(lengths) => {
                let action = long_values::expanded(&action, lengths);
                long_values::shortened(client.call(keyspace, name.as_bytes(), action)?, lengths)
            }
            None => client.call(keyspace, name.as_bytes(), action)?,
        };
        let erases = matches!(call.action, Action::Update { change: Change::Erase, .. });
        if let Some((_, answer)) = &mut call.answered {
            if !key.has_versions() {
                answer.version = Answer::VERSION_NOT_TOLD;
            }
            // An erase does not say reliably whether there was a value.
            if erases && answer.status == Status::NotFound {
                answer.status = Status::Ok;
            }
        }
        Ok(call)
    }

    /// Lists the phase's keys of a keyspace. The scan is recorded as gets of all keys that it
    /// covers (C11).
    fn scan(self, client: &mut Client, keyspace: usize) -> Result<Vec<KeyCall>> {
        let spec = &self.keyspaces[keyspace];
        // Scans up to here: in ASCII, digits come after '-' and before ':'.
        let prefix = format!("chaos-{}-{}", self.seed, self.phase);
        let (after, last) = (format!("{prefix}-"), format!("{prefix}-:"));
        let covered = client.scan(spec.id, after.as_bytes(), last.as_bytes())?;
        let mut calls = Vec::new();
        // Scans do not return long values.
        let keys = (0..KEYS).map(|index| Key { keyspace, index }).filter(|key| self.lengths(*key).is_none());
        let keys: Vec<Key> = keys.collect();
        for (piece, key) in covered.iter().flat_map(|piece| keys.iter().map(move |key| (piece, *key))) {
            let (called, at) = piece.between;
            let answer = piece.answer(self.name(key).as_bytes());
            let answered = answer.map(|answer| (at, answer));
            calls.extend(
                answered
                    .map(|answered| (key, Call { action: Action::Get, called, answered: Some(answered) })),
            );
        }
        Ok(calls)
    }

    fn draw_key(self, client: &Client, random: &mut Random) -> Key {
        let keyspace = random.below(self.keyspaces.len() as u64) as usize;
        let half = KEYS as u64 / 2;
        let place = match random.below(3) == 0 {
            _ if self.is_hot(keyspace) => by_popularity(half, random),
            true => random.below(HOT_KEYS),
            false => random.below(half),
        } as usize;
        let shared = !client.sees_versions() || random.below(3) == 0;
        Key { keyspace, index: 2 * place + usize::from(shared) }
    }

    /// The lengths of the key's values, if they are long. Chains do not support values in chunks.
    fn lengths(self, key: Key) -> Option<Lengths> {
        let is_long = key.index / 2 % LARGE_EVERY == LARGE_EVERY - 1;
        is_long.then_some(match self.keyspaces[key.keyspace].protocol {
            Protocol::Chain => long_values::WHOLE,
            Protocol::Multicast | Protocol::Quorum { .. } => long_values::LARGE,
        })
    }

    fn is_hot(self, keyspace: usize) -> bool {
        self.keyspaces[keyspace].balancing == LoadBalancing::Hot
    }

    fn draw(self, client: &Client, key: Key, seen: OpId, value: Vec<u8>, random: &mut Random) -> Action {
        // Keys that are written all the time would get no copies.
        if self.is_hot(key.keyspace) && random.below(10) < HOT_GETS_OF_TEN {
            return Action::Get;
        }
        match self.keyspaces[key.keyspace].protocol {
            Protocol::Multicast | Protocol::Chain if self.lengths(key).is_some() => {
                draw_large(client.sees_versions() && key.has_versions(), seen, value, random)
            }
            Protocol::Multicast | Protocol::Chain => {
                draw(client.sees_versions() && key.has_versions(), seen, value, random)
            }
            Protocol::Quorum { .. } => draw_for_quorum(value, random),
        }
    }
}

/// A random index below `places`, by Zipf's law with exponent 1.
fn by_popularity(places: u64, random: &mut Random) -> u64 {
    let share = random.below(1 << 32) as f64 / (1_u64 << 32) as f64;
    (((places as f64 + 1.0).powf(share)) as u64).clamp(1, places) - 1
}

/// Makes calls until it is stopped, and returns them.
pub(crate) fn run(
    client: &mut Client,
    number: u64,
    random: &mut Random,
    keys: Keys<'_>,
    stopped: &AtomicBool,
) -> Result<Vec<KeyCall>> {
    let mut calls = Vec::new();
    let mut seen: BTreeMap<Key, OpId> = BTreeMap::new();
    while !stopped.load(Ordering::Relaxed) {
        let key = keys.draw_key(client, random);
        let version = seen.get(&key).copied().unwrap_or(OpId::NONE);
        let value = (number * 1_000_000 + calls.len() as u64).to_string().into_bytes();
        let action = keys.draw(client, key, version, value, random);
        let call = keys.call(client, key, action)?;
        if let Some((_, answer)) = &call.answered {
            seen.insert(key, answer.version);
        }
        calls.push((key, call));
        let is_ordered = matches!(keys.keyspaces[key.keyspace].protocol, Protocol::Multicast);
        if is_ordered && random.below(CALLS_PER_SCAN) == 0 {
            calls.extend(keys.scan(client, key.keyspace)?);
        }
        std::thread::sleep(Duration::from_micros(random.below(PAUSE_US_MAX)));
    }
    Ok(calls)
}

/// Draws one of the operations that large values support.
fn draw_large(compares_versions: bool, version: OpId, value: Vec<u8>, random: &mut Random) -> Action {
    loop {
        match draw(compares_versions, version, value.clone(), random) {
            Action::Update { change: Change::Append(_) | Change::Increment(_), .. } => {}
            action => return action,
        }
    }
}

fn draw(compares_versions: bool, version: OpId, value: Vec<u8>, random: &mut Random) -> Action {
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
        3 if compares_versions => (When::IfVersion(version), false),
        _ => (When::Always, false),
    };
    Action::Update { op: OpId::NONE, condition, return_old, change }
}

fn draw_for_quorum(value: Vec<u8>, random: &mut Random) -> Action {
    let change = match random.below(10) {
        0..4 => return Action::Get,
        4..8 => Change::Set(value),
        _ => Change::Erase,
    };
    Action::Update { op: OpId::NONE, condition: When::Always, return_old: false, change }
}

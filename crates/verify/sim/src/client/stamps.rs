//! Stamps of object names (P8): a client puts names with stamps, some too old, and lists names that have adopted a round.

use super::{Client, KeyCall};
use crate::checker::model::{Action, Answer, Change};
use nicekv_metadata::ChunkInfo;
use nicekv_proto::chunk::Round;
use nicekv_proto::{Condition, KeyspaceId, OpId};
use std::collections::BTreeMap;

/// Maximum age of a stamp in rounds: half of them are too old.
const AGES: u64 = 4;

/// The stamps that a client knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    /// The newest round, and whether names have adopted it; none: keys are no names.
    known: Option<(Round, bool)>,
    /// Draws how old a stamp is.
    random: u64,
    /// Stamps of what it has put, by value: none is put twice.
    put: BTreeMap<Vec<u8>, Round>,
    /// When names are listed, the oldest stamp that they take.
    listing: Option<Round>,
    listed: Vec<Listed>,
}

/// What was listed of a key.
#[derive(Clone, Debug)]
struct Listed {
    key: usize,
    value: Option<Vec<u8>>,
    stamp_min: Round,
    /// On the clock of calls.
    ended: u64,
}

impl Stamps {
    /// Learns the round from the metadata service.
    pub(crate) fn learn(&mut self, chunks: &ChunkInfo) {
        self.known = Some((Round(chunks.round), chunks.is_adopted));
    }

    /// What an update is sent with.
    pub(crate) fn condition(&mut self, keyspace: u16, condition: Condition, change: &Change) -> Condition {
        // Those that are created later on are no names.
        let known = self.known.filter(|_| KeyspaceId(keyspace) == KeyspaceId::DEFAULT);
        let (Some((round, _)), Change::Set(value)) = (known, change) else { return condition };
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(value.len() as u64 | 1);
        let stamp = Round(round.0.saturating_sub((self.random >> 40) % AGES));
        self.put.insert(value.clone(), stamp);
        match condition {
            Condition::Always => Condition::Stamped(stamp),
            Condition::IfAbsent => Condition::StampedIfVersion { stamp, version: OpId::NONE },
            Condition::IfVersion(version) => Condition::StampedIfVersion { stamp, version },
            // Without a stamp it is refused.
            other => other,
        }
    }

    /// As a target does it, names are listed when they have adopted a round.
    pub(crate) fn begin_listing(&mut self) {
        let adopted = self.known.filter(|(_, is_adopted)| *is_adopted);
        self.listing = adopted.map(|(round, _)| Round(round.0.saturating_sub(1)));
    }

    pub(crate) fn note_listed(&mut self, seen: &[KeyCall]) {
        let Some(stamp_min) = self.listing else { return };
        for KeyCall { key, call, .. } in seen {
            if let Some((ended, answer)) = &call.answered {
                let value = answer.value.clone();
                self.listed.push(Listed { key: *key, value, stamp_min, ended: *ended });
            }
        }
    }
}

/// A value that a name got after it was listed in a round has a stamp that the round accepts.
pub(crate) fn judge(clients: &[Client]) -> Option<String> {
    let stamp_of = |value: &Vec<u8>| clients.iter().find_map(|client| client.stamps.put.get(value));
    let mut shown: BTreeMap<usize, Vec<(u64, &Vec<u8>)>> = BTreeMap::new();
    for KeyCall { key, call, .. } in clients.iter().flat_map(|client| &client.history) {
        if let (Action::Get, Some((_, Answer { value: Some(value), .. }))) = (&call.action, &call.answered) {
            shown.entry(*key).or_default().push((call.called, value));
        }
    }
    for listed in clients.iter().flat_map(|client| &client.stamps.listed) {
        let later = shown.get(&listed.key).into_iter().flatten();
        let is_other = |value: &Vec<u8>| listed.value.as_ref() != Some(value);
        let mut others = later.filter(|(called, value)| *called > listed.ended && is_other(value));
        let old = others.find(|(_, value)| stamp_of(value).is_some_and(|stamp| *stamp < listed.stamp_min));
        if let Some((_, value)) = old {
            let (key, stamp, value) = (listed.key, stamp_of(value), String::from_utf8_lossy(value));
            return Some(format!(
                "key {key} has {value} with stamp {stamp:?}, and had not when it was listed, which takes none before {:?} (P8)",
                listed.stamp_min
            ));
        }
    }
    None
}

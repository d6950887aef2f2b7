//! Stamps of object names (P8): a client puts names with stamps, some of them too old, and lists
//! names that have adopted a round of garbage collection.

use super::{Client, KeyCall};
use crate::checker::model::{Action, Answer, Change};
use nicekv_metadata::ChunkInfo;
use nicekv_proto::chunk::Round;
use nicekv_proto::{Condition, KeyspaceId, OpId};
use std::collections::BTreeMap;

/// Maximum age of a stamp in rounds: half of them are too old.
const AGES: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    /// The newest round, and whether all names have adopted it. `None`: the keys are not names of
    /// objects.
    known: Option<(Round, bool)>,
    /// State of the generator that draws how old a stamp is.
    random: u64,
    /// The stamp of each value that the client has put. No value is put twice.
    put: BTreeMap<Vec<u8>, Round>,
    /// While the client lists names: the oldest stamp that the names accept.
    listing: Option<Round>,
    listed: Vec<Listed>,
}

/// The value of a key when it was listed.
#[derive(Clone, Debug)]
struct Listed {
    key: usize,
    value: Option<Vec<u8>>,
    stamp_min: Round,
    /// When the listing was answered, as a number of [`Client::turn`]'s `tick`.
    ended: u64,
}

impl Stamps {
    /// Learns the current round from the metadata service.
    pub(crate) fn learn(&mut self, chunks: &ChunkInfo) {
        self.known = Some((Round(chunks.round), chunks.is_adopted));
    }

    /// The condition of an update, with a stamp added if it sets an object name.
    pub(crate) fn condition(&mut self, keyspace: u16, condition: Condition, change: &Change) -> Condition {
        // Keys of keyspaces that were created during the run are not object names.
        let known = self.known.filter(|_| KeyspaceId(keyspace) == KeyspaceId::DEFAULT);
        let (Some((round, _)), Change::Set(value)) = (known, change) else { return condition };
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(value.len() as u64 | 1);
        let stamp = Round(round.0.saturating_sub((self.random >> 40) % AGES));
        self.put.insert(value.clone(), stamp);
        match condition {
            Condition::Always => Condition::Stamped(stamp),
            Condition::IfAbsent => Condition::StampedIfVersion { stamp, version: OpId::NONE },
            Condition::IfVersion(version) => Condition::StampedIfVersion { stamp, version },
            // The store refuses a set of a name without a stamp.
            other => other,
        }
    }

    /// Begins to list names. As a target does, it relies on the round only if all names have
    /// adopted it.
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

/// Checks P8: a value that a name got after a listing has a stamp that the listing's round accepts.
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
                "key {key} got {value} with stamp {stamp:?} after it was listed, though the listing's round accepts no stamp before {:?} (P8)",
                listed.stamp_min
            ));
        }
    }
    None
}

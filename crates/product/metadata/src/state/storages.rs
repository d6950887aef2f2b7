//! What is remembered of the nodes' storages (R18).
//!
//! A storage cannot know that it has forgotten something: a lost log segment, or a directory from a snapshot, looks like one that has never held more. Others know: a node says with
//! each heartbeat how far its log is durable, and that is remembered here. A process that finds less than an earlier one had confirmed has forgotten something. Its storage counts as
//! another one from then on, under an id that follows from how often that has happened, and what it holds is void.

use alloc::collections::BTreeMap;

use nicekv_proto::NodeId;
use nicekv_proto::control::Heartbeat;
use serde::{Deserialize, Serialize};

/// What a node has confirmed of its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Storage {
    /// As the node names it.
    id: u128,
    /// The process that said so.
    incarnation: u64,
    /// Position through which its log was durable.
    pub(crate) durable: u64,
    /// How often it has forgotten something.
    pub(crate) losses: u32,
}

impl Storage {
    fn of(heartbeat: &Heartbeat, losses: u32) -> Self {
        let Heartbeat { storage, incarnation, durable, .. } = *heartbeat;
        Self { id: storage, incarnation, durable, losses }
    }

    /// Under which decisions know it.
    pub(crate) fn identity(&self) -> u128 {
        self.id.wrapping_add(self.losses.into())
    }

    /// Its log is durable through `position`, says the process that uses it.
    pub(crate) fn confirm(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// It has forgotten something.
    pub(crate) fn with_a_loss(self) -> Self {
        Self { losses: self.losses + 1, ..self }
    }
}

/// Of the nodes, by their ids.
pub(crate) type Storages = BTreeMap<u16, Storage>;

/// What a heartbeat says of its node's storage, beside what is remembered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It holds what was confirmed; to be remembered.
    Sound(Storage),
    /// What it holds is void, as it lacks some of what was confirmed, or is another one that was in use; to be remembered before the node takes part.
    Void(Storage),
}

/// Judges what a node finds in its storage.
pub(crate) fn judge(storages: &Storages, heartbeat: &Heartbeat) -> Judgement {
    let Some(known) = storages.get(&heartbeat.node.0) else {
        return Judgement::Sound(Storage::of(heartbeat, 0));
    };
    let is_same = known.id == heartbeat.storage;
    let losses = if is_same { known.losses } else { 0 };
    let now = Storage::of(heartbeat, losses);
    if is_same && known.incarnation == heartbeat.incarnation {
        return Judgement::Sound(Storage { durable: known.durable.max(now.durable), ..now });
    }
    match is_same {
        true if heartbeat.opened < known.durable => Judgement::Void(now.with_a_loss()),
        // A new one holds nothing.
        false if heartbeat.opened > 0 => Judgement::Void(now),
        _ => Judgement::Sound(now),
    }
}

/// The identity of a node's storage, as far as it is remembered.
pub(crate) fn identity(storages: &Storages, node: NodeId) -> Option<u128> {
    storages.get(&node.0).map(Storage::identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::control::DiskSpace;

    fn heartbeat(storage: u128, incarnation: u64, opened: u64, durable: u64) -> Heartbeat {
        let (node, unanswered, space, sent_ns) = (NodeId(7), 0, DiskSpace::Enough, 0);
        Heartbeat { node, unanswered, space, incarnation, storage, sent_ns, opened, durable }
    }

    /// Remembers what a storage confirmed.
    fn after(heartbeats: &[Heartbeat]) -> Storages {
        let mut storages = Storages::new();
        for heartbeat in heartbeats {
            let (Judgement::Sound(storage) | Judgement::Void(storage)) = judge(&storages, heartbeat);
            storages.insert(heartbeat.node.0, storage);
        }
        storages
    }

    #[test]
    fn a_process_that_finds_less_than_was_confirmed_is_void_once() {
        let storages = after(&[heartbeat(3, 1, 0, 0), heartbeat(3, 1, 0, 40), heartbeat(3, 1, 0, 90)]);
        for (opened, is_sound) in [(0, false), (89, false), (90, true), (95, true)] {
            let judgement = judge(&storages, &heartbeat(3, 2, opened, opened));
            assert_eq!(matches!(judgement, Judgement::Sound(_)), is_sound, "{opened}");
        }
        let Judgement::Void(storage) = judge(&storages, &heartbeat(3, 2, 50, 50)) else {
            panic!("it lacks 40")
        };
        assert_ne!(storage.identity(), storages[&7].identity());
        let storages = Storages::from([(7, storage)]);
        let same = judge(&storages, &heartbeat(3, 2, 50, 60));
        assert!(matches!(same, Judgement::Sound(now) if now.losses == 1 && now.durable == 60));
        let restarted = judge(&storages, &heartbeat(3, 3, 50, 50));
        assert!(matches!(restarted, Judgement::Sound(now) if now.losses == 1));
        assert!(
            matches!(judge(&storages, &heartbeat(3, 3, 49, 49)), Judgement::Void(now) if now.losses == 2)
        );
    }

    #[test]
    fn a_heartbeat_that_was_overtaken_takes_nothing_back() {
        let storages = after(&[heartbeat(3, 1, 0, 90), heartbeat(3, 1, 0, 40)]);
        assert_eq!(storages[&7].durable, 90);
    }

    #[test]
    fn another_storage_is_void_unless_it_is_new() {
        let storages = after(&[heartbeat(3, 1, 0, 90)]);
        assert!(matches!(judge(&storages, &heartbeat(4, 2, 0, 0)), Judgement::Sound(now) if now.losses == 0));
        assert!(matches!(judge(&storages, &heartbeat(4, 2, 120, 120)), Judgement::Void(_)));
    }
}

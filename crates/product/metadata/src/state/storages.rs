//! The durable log positions of nodes' storages (R18).
//!
//! A storage cannot know that it has lost data: without its last log segment, or restored from a
//! snapshot, it looks as if it had never held more. So a node reports with each heartbeat how far
//! its log is durable, and the position is persisted here. If a process finds less than an earlier
//! process had confirmed, its storage has lost data. From then on it counts as another storage,
//! under an id derived from the number of losses, and its data are void.

use alloc::collections::BTreeMap;

use nicekv_proto::NodeId;
use nicekv_proto::control::Heartbeat;
use serde::{Deserialize, Serialize};

/// A node's confirmed storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Storage {
    /// The storage's id, as the node reports it.
    id: u128,
    /// The process that reported it.
    incarnation: u64,
    /// The position through which its log is durable.
    pub(crate) durable: u64,
    /// How often the storage has lost data.
    pub(crate) losses: u32,
}

impl Storage {
    fn of(heartbeat: &Heartbeat, losses: u32) -> Self {
        let Heartbeat { storage, incarnation, durable, .. } = *heartbeat;
        Self { id: storage, incarnation, durable, losses }
    }

    /// The storage's identity for decisions.
    pub(crate) fn identity(&self) -> u128 {
        self.id.wrapping_add(self.losses.into())
    }

    /// Records a process's report that its log is durable through `position`.
    pub(crate) fn confirm(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// The record after another loss of data.
    pub(crate) fn with_a_loss(self) -> Self {
        Self { losses: self.losses + 1, ..self }
    }
}

/// The records, by node id.
pub(crate) type Storages = BTreeMap<u16, Storage>;

/// The result of comparing a heartbeat with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The storage has everything that was confirmed. The new record must be stored.
    Sound(Storage),
    /// The data are void: the storage lacks confirmed data, or was in use elsewhere. The new record
    /// must be persisted before the node takes part.
    Void(Storage),
}

/// Compares what a process has found in its storage with the record.
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
        // A storage without a record must be empty.
        false if heartbeat.opened > 0 => Judgement::Void(now),
        _ => Judgement::Sound(now),
    }
}

/// The identity of a node's storage, if one is recorded.
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

    /// The records after these heartbeats.
    fn after(heartbeats: &[Heartbeat]) -> Storages {
        let mut storages = Storages::new();
        for heartbeat in heartbeats {
            let (Judgement::Sound(storage) | Judgement::Void(storage)) = judge(&storages, heartbeat);
            storages.insert(heartbeat.node.0, storage);
        }
        storages
    }

    #[test]
    fn storage_that_lost_confirmed_data_is_void_once() {
        let storages = after(&[heartbeat(3, 1, 0, 0), heartbeat(3, 1, 0, 40), heartbeat(3, 1, 0, 90)]);
        for (opened, is_sound) in [(0, false), (89, false), (90, true), (95, true)] {
            let judgement = judge(&storages, &heartbeat(3, 2, opened, opened));
            assert_eq!(matches!(judgement, Judgement::Sound(_)), is_sound, "{opened}");
        }
        let Judgement::Void(storage) = judge(&storages, &heartbeat(3, 2, 50, 50)) else {
            panic!("the storage lacks position 40")
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
    fn reordered_heartbeat_is_ignored() {
        let storages = after(&[heartbeat(3, 1, 0, 90), heartbeat(3, 1, 0, 40)]);
        assert_eq!(storages[&7].durable, 90);
    }

    #[test]
    fn unknown_storage_is_void_unless_empty() {
        let storages = after(&[heartbeat(3, 1, 0, 90)]);
        assert!(matches!(judge(&storages, &heartbeat(4, 2, 0, 0)), Judgement::Sound(now) if now.losses == 0));
        assert!(matches!(judge(&storages, &heartbeat(4, 2, 120, 120)), Judgement::Void(_)));
    }
}

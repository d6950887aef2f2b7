//! Values that a primary makes in its epoch, and how far each is (`made`).

use crate::modes::ordered::evaluate::KeyValue;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use nicekv_proto::OpId;
use nicekv_proto::large::Reference;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not begun: its parts are not here, or too much else is being made.
    Waiting,
    /// The node makes it.
    UnderWay,
    /// It is here, and its hold is open.
    Held(Reference),
    /// There was no room, then.
    NoRoom { at_ns: u64 },
}

/// A value that is made for an op.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    pub(crate) key: Box<[u8]>,
    /// The key's state of which it is made.
    pub(crate) base: Option<KeyValue>,
    /// Of the hold: an op of the node's own client, and that client's watermark then.
    pub(crate) name: OpId,
    pub(crate) watermark: u64,
    pub(crate) stage: Stage,
}

/// Values that this primary makes in its epoch, by the ops that they are for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Makings {
    pub(crate) by_op: BTreeMap<OpId, Making>,
}

impl Makings {
    /// The one of this name that is under way.
    pub(crate) fn named(&mut self, name: OpId) -> Option<&mut Making> {
        self.by_op.values_mut().find(|making| making.name == name && making.stage == Stage::UnderWay)
    }

    /// Whether this is the hold of an op that these are.
    pub(crate) fn is_held_for(&self, hold: OpId, is_it: impl Fn(OpId) -> bool) -> bool {
        self.by_op.iter().any(|(op, making)| making.name == hold && is_it(*op))
    }

    /// An op has been decided. Its key, and the hold of what was made for it.
    pub(crate) fn end(&mut self, op: OpId) -> Option<(Box<[u8]>, OpId)> {
        let Making { key, name, stage, .. } = self.by_op.remove(&op)?;
        matches!(stage, Stage::Held(_)).then_some((key, name))
    }
}

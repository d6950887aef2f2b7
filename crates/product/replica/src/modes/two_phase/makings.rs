//! The values that a primary builds in its epoch, and the stage of each (`make_value`).

use crate::modes::ordered::evaluate::KeyValue;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use nicekv_proto::OpId;
use nicekv_proto::large::Reference;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not started: its parts are not on disk, or too many values are being built.
    Waiting,
    /// The node is building it.
    UnderWay,
    /// The value is on disk, and its hold is open.
    Held(Reference),
    /// The disk had no room for it.
    NoRoom { at_ns: u64 },
}

/// A value that is built for an op.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    pub(crate) key: Box<[u8]>,
    /// The state of the key from which the value is built.
    pub(crate) base: Option<KeyValue>,
    /// Op id of the hold, which names the value; it is of the node's own client, whose watermark
    /// follows.
    pub(crate) name: OpId,
    pub(crate) watermark: u64,
    pub(crate) stage: Stage,
}

/// The values that this primary builds in its epoch, by the op that needs each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Makings {
    pub(crate) by_op: BTreeMap<OpId, Making>,
}

impl Makings {
    /// The value with this name, if it is being built.
    pub(crate) fn named(&mut self, name: OpId) -> Option<&mut Making> {
        self.by_op.values_mut().find(|making| making.name == name && making.stage == Stage::UnderWay)
    }

    /// Whether `hold` is the hold of a value for an op that `is_it` accepts.
    pub(crate) fn is_held_for(&self, hold: OpId, is_it: impl Fn(OpId) -> bool) -> bool {
        self.by_op.iter().any(|(op, making)| making.name == hold && is_it(*op))
    }

    /// An op was decided. If a value was built for it, returns its key and the hold of the value.
    pub(crate) fn end(&mut self, op: OpId) -> Option<(Box<[u8]>, OpId)> {
        let Making { key, name, stage, .. } = self.by_op.remove(&op)?;
        matches!(stage, Stage::Held(_)).then_some((key, name))
    }
}

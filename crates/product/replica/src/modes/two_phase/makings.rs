//! Values that a primary builds in its epoch, and the stage of each (`make_value`).

use crate::modes::ordered::evaluate::KeyValue;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use nicekv_proto::OpId;
use nicekv_proto::large::Reference;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not begun: its parts are not on disk, or too many values are being built.
    Waiting,
    /// The node is building it.
    UnderWay,
    /// It is on disk, and its hold is open.
    Held(Reference),
    /// There was no room on disk.
    NoRoom { at_ns: u64 },
}

/// A value that is built for an op.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    pub(crate) key: Box<[u8]>,
    /// The state of the key that it is built from.
    pub(crate) base: Option<KeyValue>,
    /// Name of the hold: an op of the node's own client, and that client's watermark.
    pub(crate) name: OpId,
    pub(crate) watermark: u64,
    pub(crate) stage: Stage,
}

/// Values that this primary builds in its epoch, by the ops that need them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Makings {
    pub(crate) by_op: BTreeMap<OpId, Making>,
}

impl Makings {
    /// The value of this name that is being built.
    pub(crate) fn named(&mut self, name: OpId) -> Option<&mut Making> {
        self.by_op.values_mut().find(|making| making.name == name && making.stage == Stage::UnderWay)
    }

    /// Whether `hold` is the hold of a value for an op that `is_it` accepts.
    pub(crate) fn is_held_for(&self, hold: OpId, is_it: impl Fn(OpId) -> bool) -> bool {
        self.by_op.iter().any(|(op, making)| making.name == hold && is_it(*op))
    }

    /// An op was decided: its key, and the hold of the value that was built for it.
    pub(crate) fn end(&mut self, op: OpId) -> Option<(Box<[u8]>, OpId)> {
        let Making { key, name, stage, .. } = self.by_op.remove(&op)?;
        matches!(stage, Stage::Held(_)).then_some((key, name))
    }
}

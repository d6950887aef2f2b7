//! What planted bugs answer that nobody else does.

use super::partition::Partition;
use nicekv_node::{Host, Plant, Standing};

impl Partition {
    /// Whether a get is answered before the process is admitted.
    pub(super) fn answers_unadmitted(&self, host: &Host, key: &[u8]) -> bool {
        host.has(Plant::AnswerUnadmitted)
            && self.membership.standing == Standing::Outside
            && !self.locks.is_locked(key)
    }

    /// Whether a get is answered though the replica has left the epoch since it came.
    pub(super) fn answers_after_leaving(&self, host: &Host, key: &[u8]) -> bool {
        host.has(Plant::AnswerAfterLeaving) || self.answers_unadmitted(host, key)
    }

    /// Whether a secondary answers a get of a locked key.
    pub(super) fn answers_stale(&self, host: &Host) -> bool {
        host.has(Plant::StaleGetAtLockedSecondary) && !self.is_primary()
    }
}

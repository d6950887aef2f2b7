//! Rounds of garbage collection (P8): whether one is due, and whether it is adopted.

use crate::state::Partition;
use crate::view::{Situation, all_acknowledged};

/// Whether a round should begin without a command.
pub(crate) fn is_due(situation: &Situation<'_>) -> bool {
    let Situation { config, state, observations, now_ns, .. } = situation;
    let interval = config.timing.collect_interval.filter(|_| state.chunks.is_some());
    interval.is_some_and(|interval| observations.chunks.has_lasted(*now_ns, interval))
}

/// Whether every partition of names has adopted the newest round, and no member decides by an older
/// one. Then later decisions carry the round's stamp, and a list of all names shows earlier ones.
pub(crate) fn names_have_adopted(situation: &Situation<'_>) -> bool {
    let state = situation.state;
    state.partitions().all(|(id, partition): (_, &Partition)| {
        let is_in_force = || {
            partition.activated
                && partition.parents.is_empty()
                && all_acknowledged(partition, &situation.view(id, partition))
        };
        let newest = state.round_of(partition.keyspace);
        newest == 0 || (partition.round == newest && is_in_force())
    })
}

//! Defects of a chunk, derived from its holders (P11, P12).

use crate::map::Group;
use nicekv_proto::NodeId;
use nicekv_proto::chunk::ChunkId;
use nicekv_proto::placement::rendezvous_rank;

/// Something is wrong with a chunk, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// A holder was removed, and the chunk was not checked since.
    Unseen,
    /// This target is not, or no longer, in the chunk's group.
    Away,
    /// A target that may hold the chunk is silent.
    Unsure,
    /// The chunk has too few holders, but may be garbage: the next round of collection decides.
    Undecided,
    /// The chunk has too few holders. `is_first`: this target is the first of them, and so puts it
    /// again.
    Lacking { is_first: bool },
    /// Enough other holders rank before this target.
    Surplus,
}

/// The members of a group that rank before `own`, as a mask.
pub(super) fn better(group: &Group, id: &ChunkId, own: NodeId) -> u16 {
    let rank = |node| rendezvous_rank(&id.0, node);
    let better = group.members().filter(|(_, node)| rank(*node) < rank(own));
    better.fold(0, |mask, (place, _)| mask | 1 << place)
}

/// The holders of a chunk from the view of one member, as masks of places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders {
    /// Members that hold the chunk, including this one.
    pub(super) held: u16,
    /// Silent members, which may hold it.
    pub(super) silent: u16,
    /// Members that rank before this one.
    pub(super) better: u16,
}

/// The finding of a member; `None`: nothing to do.
pub(super) fn finding(copies: usize, holders: Holders) -> Option<Finding> {
    let Holders { held, silent, better } = holders;
    let count = |mask: u16| mask.count_ones() as usize;
    if count(held) >= copies {
        return (count(held & better) >= copies).then_some(Finding::Surplus);
    }
    Some(match count(held | silent) >= copies {
        true => Finding::Unsure,
        false => Finding::Lacking { is_first: held & better == 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn first_of_too_few_puts_again_and_last_of_too_many_drops() {
        let own = 0b1000;
        let of = |held: u16, silent, better| finding(2, Holders { held: held | own, silent, better });
        assert_eq!(of(0b0001, 0, 0b0111), None);
        assert_eq!(
            of(0, 0, 0b0111),
            Some(Finding::Lacking { is_first: true }),
            "no member before it holds the chunk"
        );
        assert_eq!(of(0, 0b0010, 0b0111), Some(Finding::Unsure));
        assert_eq!(of(0b0011, 0, 0b0111), Some(Finding::Surplus));
        assert_eq!(of(0b0011, 0, 0b0101), None, "only one of the other holders ranks before it");
        let of_three = |held: u16, better| finding(3, Holders { held: held | own, silent: 0, better });
        assert_eq!(of_three(0b0001, 0b0001), Some(Finding::Lacking { is_first: false }));
        assert_eq!(of_three(0b0001, 0b0010), Some(Finding::Lacking { is_first: true }));
    }

    #[test]
    fn members_agree_on_their_ranks() {
        let nodes: Vec<NodeId> = (3..9).map(NodeId).collect();
        let (group, id) = (Group::new(&nodes).unwrap(), ChunkId([5; 32]));
        let mut counts: Vec<u32> = nodes.iter().map(|node| better(&group, &id, *node).count_ones()).collect();
        counts.sort_unstable();
        assert_eq!(counts, [0, 1, 2, 3, 4, 5]);
    }
}

//! Rendezvous hashing of chunks to targets: each target has a rank that depends on chunk and target
//! only, so all nodes agree without messages, whichever targets come and go.

use crate::NodeId;

/// Rank of a target for a chunk, whose id is itself a hash. The lowest rank is the best; ranks are
/// unique.
pub fn rendezvous_rank(id: &[u8; 32], node: NodeId) -> (u64, NodeId) {
    // The first bytes are equal within a slot.
    let (words, _) = id[16..].as_chunks::<8>();
    let key = u64::from_be_bytes(words[0]) ^ (u64::from(node.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed(key), node)
}

/// Mixes so that each input bit flips half of the output bits (SplitMix64).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_even_and_stable_when_targets_leave() {
        let nodes: [NodeId; 9] = core::array::from_fn(|node| NodeId(node as u16));
        let first = |id: &[u8; 32], nodes: &[NodeId]| {
            nodes.iter().copied().min_by_key(|node| rendezvous_rank(id, *node)).expect("there are some")
        };
        let mut firsts = [0; 9];
        for number in 0..9_000_u64 {
            let id = *blake3::hash(&number.to_be_bytes()).as_bytes();
            let best = first(&id, &nodes);
            firsts[usize::from(best.0)] += 1;
            let others = first(&id, &nodes[1..]);
            assert!(best == others || best == nodes[0]);
        }
        assert!(firsts.iter().all(|count| (850..1_150).contains(count)), "{firsts:?}");
    }

    #[test]
    fn ranks_never_change() {
        // Must not change between releases that run side by side.
        assert_eq!(rendezvous_rank(&[7; 32], NodeId(3)), (0xe126_47f2_755e_acd4, NodeId(3)));
        assert_eq!(mixed(1), 0x5692_161d_100b_05e5);
    }
}

use super::*;
use alloc::vec;
use nicekv_testkit::Random;

/// Two core switches (0, 1), two aggregation switches (2, 3) and four ToRs (4 to 7), each connected
/// to all switches of the level above.
fn fabric() -> Topology {
    let mut topology = Topology::default();
    let links = [(0, 2), (0, 3), (1, 2), (1, 3)].into_iter();
    let links = links.chain((4..8).flat_map(|leaf| [(2, leaf), (3, leaf)]));
    for (one, other) in links {
        assert!(topology.connect(one, other, 100 + other) && topology.connect(other, one, 100 + one));
    }
    topology
}

fn links(tree: &SpanningTree) -> Vec<(u16, u16)> {
    tree.links().map(|link| (link.one, link.other)).collect()
}

fn without(links: &[(u16, u16)], silent: &[u16]) -> SpanningTree {
    let links = links.iter().map(|(one, other)| Link::between(*one, *other)).collect();
    SpanningTree::around(&fabric(), &TrunkFailures { links, silent: silent.iter().copied().collect() })
}

/// Whether the eight switches form `parts` connected parts, and within each part exactly one path
/// connects any two switches.
fn is_tree(tree: &SpanningTree, parts: usize) -> bool {
    tree.links().count() + parts == 8
        && tree.links().all(|link| {
            let others = tree.links().filter(|other| *other != link).collect();
            !is_connected(&others, link.one, link.other)
        })
}

#[test]
fn redundant_trunks_are_left_out_and_children_are_spread() {
    let tree = without(&[], &[]);
    assert_eq!(links(&tree), [(0, 2), (0, 3), (1, 2), (2, 5), (2, 7), (3, 4), (3, 6)]);
    assert!(is_tree(&tree, 1));
    assert_eq!(tree.open_at(&fabric(), 3), [100, 104, 106]);
    assert_eq!(tree.ports_to(&fabric(), 4), (0..8).filter(|it| *it != 4).map(|it| (it, 103)).collect());
}

#[test]
fn tree_avoids_any_one_failed_trunk_or_switch() {
    for link in fabric().links() {
        let tree = without(&[(link.one, link.other)], &[]);
        assert!(is_tree(&tree, 1) && !tree.has(link), "{link:?}: {tree:?}");
        let moved = tree.links().filter(|other| !without(&[], &[]).has(*other)).count();
        assert!(link.one < 2 || moved <= 1, "{link:?}: at most one other trunk changes: {tree:?}");
    }
    for silent in 0..8 {
        let tree = without(&[], &[silent]);
        assert!(is_tree(&tree, 1), "{silent}: {tree:?}");
        assert_eq!(
            tree.links().filter(|link| link.is_of(silent)).count(),
            1,
            "silent switch {silent} is a leaf"
        );
    }
    let cut_off = without(&[(2, 4), (3, 4)], &[]);
    assert!(is_tree(&cut_off, 2));
    assert_eq!(cut_off.open_at(&fabric(), 4), vec![]);
    assert!([102, 103].contains(&cut_off.ports_to(&fabric(), 4)[&0]), "a closed trunk");
}

#[test]
fn trunk_is_opened_only_after_the_loop_is_broken() {
    let (before, after) = (without(&[], &[]), without(&[(3, 4)], &[]));
    let (lost, found) = (Link::between(3, 4), Link::between(2, 4));
    let mut transition = TreeTransition::from(before.clone());
    assert!(transition.towards(&after, 7));
    assert!(!transition.tree().has(lost) && !transition.tree().has(found));
    assert!(!transition.towards(&after, 8), "not acknowledged yet");
    transition.acknowledged(4, 6);
    transition.acknowledged(2, 9);
    assert!(!transition.towards(&after, 8), "neither end has acknowledged that generation");
    transition.acknowledged(4, 7);
    assert!(transition.towards(&after, 8) && *transition.tree() == after);
    assert!(!transition.towards(&after, 9));
    // The target changes and changes back before any acknowledgement: the trunk was never closed.
    assert!(transition.towards(&before, 9) && transition.towards(&after, 10));
    assert_eq!(*transition.tree(), after);
}

/// Under random targets and acknowledgements, the trunks that both ends have open never form a
/// loop.
#[test]
fn random_transitions_never_form_a_loop() {
    let topology = fabric();
    let all: Vec<Link> = topology.links().collect();
    let mut random = Random::new(1);
    let mut draw = |below: usize| random.below(below as u64) as usize;
    let mut transition = TreeTransition::from(without(&[], &[]));
    // The generations with the trees that were announced, and the generation that each switch has
    // acknowledged.
    let mut told = vec![(0, transition.tree().clone())];
    let mut acknowledged_by = [0; 8];
    for generation in 1..2_000 {
        let failed = TrunkFailures {
            links: (0..draw(4)).map(|_| all[draw(all.len())]).collect(),
            silent: (0..draw(2)).map(|_| draw(8) as u16).collect(),
        };
        let newest = told.len() as u64;
        if transition.towards(&SpanningTree::around(&topology, &failed), newest) {
            told.push((newest, transition.tree().clone()));
        }
        for _ in 0..draw(6) {
            let switch = draw(8);
            acknowledged_by[switch] = told.len() - 1;
            transition.acknowledged(switch as u16, told[acknowledged_by[switch]].0);
        }
        let is_open = |link: &Link| {
            [link.one, link.other].iter().all(|end| told[acknowledged_by[usize::from(*end)]].1.has(*link))
        };
        let open: BTreeSet<Link> = all.iter().copied().filter(is_open).collect();
        for link in &open {
            let others = open.iter().copied().filter(|other| other != link).collect();
            assert!(
                !is_connected(&others, link.one, link.other),
                "generation {generation}: a loop: {open:?}"
            );
        }
    }
    assert!(told.len() > 500, "{}", told.len());
}

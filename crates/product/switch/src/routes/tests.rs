use super::*;
use alloc::vec;

/// Two Cores (0, 1), two AGGs (2, 3) and four ToRs (4 to 7), each joined to all of the level above.
fn fabric() -> Topology {
    let mut topology = Topology::default();
    let links = [(0, 2), (0, 3), (1, 2), (1, 3)].into_iter();
    let links = links.chain((4..8).flat_map(|leaf| [(2, leaf), (3, leaf)]));
    for (one, other) in links {
        assert!(topology.connect(one, other, 100 + other) && topology.connect(other, one, 100 + one));
    }
    topology
}

fn links(routes: &Routes) -> Vec<(u16, u16)> {
    routes.links().map(|link| (link.one, link.other)).collect()
}

fn without(links: &[(u16, u16)], silent: &[u16]) -> Routes {
    let links = links.iter().map(|(one, other)| Link::between(*one, *other)).collect();
    Routes::around(&fabric(), &Failed { links, silent: silent.iter().copied().collect() })
}

/// Every pair of switches that are joined at all, by one way.
fn is_tree(routes: &Routes, parts: usize) -> bool {
    routes.links().count() + parts == 8
        && routes.links().all(|link| {
            let others = routes.links().filter(|other| *other != link).collect();
            !leads(&others, link.one, link.other)
        })
}

#[test]
fn redundant_trunks_are_left_out_and_the_rest_is_a_tree_that_spreads() {
    let routes = without(&[], &[]);
    assert_eq!(links(&routes), [(0, 2), (0, 3), (1, 2), (2, 5), (2, 7), (3, 4), (3, 6)]);
    assert!(is_tree(&routes, 1));
    assert_eq!(routes.open_at(&fabric(), 3), [100, 104, 106]);
    assert_eq!(routes.ways(&fabric(), 4), (0..8).filter(|it| *it != 4).map(|it| (it, 103)).collect());
}

#[test]
fn a_way_is_found_around_any_one_trunk_or_switch() {
    for link in fabric().links() {
        let routes = without(&[(link.one, link.other)], &[]);
        assert!(is_tree(&routes, 1) && !routes.has(link), "{link:?}: {routes:?}");
        let moved = routes.links().filter(|other| !without(&[], &[]).has(*other)).count();
        assert!(link.one < 2 || moved <= 1, "{link:?}: others stay: {routes:?}");
    }
    for silent in 0..8 {
        let routes = without(&[], &[silent]);
        assert!(is_tree(&routes, 1), "{silent}: {routes:?}");
        assert_eq!(routes.links().filter(|link| link.is_of(silent)).count(), 1, "nothing passes {silent}");
    }
    let cut_off = without(&[(2, 4), (3, 4)], &[]);
    assert!(is_tree(&cut_off, 2));
    assert_eq!(cut_off.open_at(&fabric(), 4), vec![]);
    assert!([102, 103].contains(&cut_off.ways(&fabric(), 4)[&0]), "a closed trunk, at which it ends");
}

#[test]
fn no_trunk_is_opened_before_what_would_close_a_circle_is_closed() {
    let (before, after) = (without(&[], &[]), without(&[(3, 4)], &[]));
    let (lost, found) = (Link::between(3, 4), Link::between(2, 4));
    let mut passage = Passage::from(before.clone());
    assert!(passage.towards(&after, 7));
    assert!(!passage.routes().has(lost) && !passage.routes().has(found));
    assert!(!passage.towards(&after, 8), "nobody has acknowledged that");
    passage.acknowledged(4, 6);
    passage.acknowledged(2, 9);
    assert!(!passage.towards(&after, 8), "neither end of that trunk has");
    passage.acknowledged(4, 7);
    assert!(passage.towards(&after, 8) && *passage.routes() == after);
    assert!(!passage.towards(&after, 9));
    // Back, and there again before anybody has acknowledged: the trunk was never closed.
    assert!(passage.towards(&before, 9) && passage.towards(&after, 10));
    assert_eq!(*passage.routes(), after);
}

/// Whatever is wanted in between, and whoever acknowledges: trunks that both ends may have open form no circle.
#[test]
fn there_is_never_a_circle() {
    let topology = fabric();
    let all: Vec<Link> = topology.links().collect();
    let mut random: u64 = 1;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut passage = Passage::from(without(&[], &[]));
    // What each switch goes by: a generation, and what it has open.
    let mut told = vec![(0, passage.routes().clone())];
    let mut goes_by = [0; 8];
    for generation in 1..2_000 {
        let failed = Failed {
            links: (0..draw(4)).map(|_| all[draw(all.len())]).collect(),
            silent: (0..draw(2)).map(|_| draw(8) as u16).collect(),
        };
        let newest = told.len() as u64;
        if passage.towards(&Routes::around(&topology, &failed), newest) {
            told.push((newest, passage.routes().clone()));
        }
        for _ in 0..draw(6) {
            let switch = draw(8);
            goes_by[switch] = told.len() - 1;
            passage.acknowledged(switch as u16, told[goes_by[switch]].0);
        }
        let is_open = |link: &Link| {
            [link.one, link.other].iter().all(|end| told[goes_by[usize::from(*end)]].1.has(*link))
        };
        let open: BTreeSet<Link> = all.iter().copied().filter(is_open).collect();
        for link in &open {
            let others = open.iter().copied().filter(|other| other != link).collect();
            assert!(!leads(&others, link.one, link.other), "a circle in step {generation}: {open:?}");
        }
    }
    assert!(told.len() > 500, "{}", told.len());
}

//! Fig. 7: balance and throughput against skew (a, b), big values (c, d), writes (e) and racks (f).

use super::cells::{Cell, Measured, measure};
use super::lines::{Line, fed, lambda, number, ratios};
use super::popularity::Popularity;
use super::rack::System;
use super::trace::{Mix, SERVERS, chance};
use crate::error::Result;
use crate::report::Goal;
use crate::statistics::Summary;
use nicekv_switch_xdp::Hook;

const SYSTEMS: [System; 3] = [System::Original, System::NetCache, System::KvSwitch];
const SKEWS: [f64; 5] = [0.0, 0.9, 0.95, 0.99, 1.5];
const SKEW: f64 = 0.99;
const BIG: [f64; 3] = [0.1, 0.25, 0.5];
const WRITES: [f64; 5] = [0.03, 0.1, 0.2, 0.3, 0.5];
const RACKS: [u16; 5] = [32, 16, 8, 4, 2];
/// γ is 1/2: so many periods bring T below a thousandth.
const RACKS_SETTLING: usize = 9;

pub(crate) fn run(quick: bool, kernel: Option<Hook>) -> Result<(Vec<Line>, Vec<String>)> {
    let all = measure(&cells(quick, kernel))?;
    let of =
        |is: &dyn Fn(&Cell) -> bool| all.iter().filter(|measured| is(&measured.cell)).collect::<Vec<_>>();
    let is_plain = |cell: &Cell| cell.mix.writes == 0.0 && cell.mix.big == 0.0 && cell.racks == 1;
    let skews = of(&is_plain);
    let bigs = of(&|cell| {
        cell.racks == 1 && cell.skew == SKEW && cell.mix.writes == 0.0 && cell.system != System::Original
    });
    let writes = of(&|cell| cell.racks == 1 && cell.skew == SKEW && cell.mix.big == 0.0);
    let mut racks =
        of(&|cell| cell.racks > 1 || is_plain(cell) && cell.skew == SKEW && cell.system == System::KvSwitch);
    racks.sort_by_key(|measured| measured.cell.racks);
    let mut lines = by_skew(&skews);
    lines.extend(by_big(&bigs));
    lines.extend(by_writes(&writes));
    lines.extend(racks.iter().map(|measured| {
        let servers = measured.cell.racks * SERVERS;
        let goal = (servers == 1_024).then_some(Goal::AtMost(0.018));
        let paper = (servers == 1_024).then_some(0.018);
        lambda(("7f", "servers", servers.into()), measured).goal(goal).paper(paper)
    }));
    lines.extend(all.iter().filter_map(fed));
    Ok((lines, notes(&skews)))
}

fn cells(quick: bool, kernel: Option<Hook>) -> Vec<Cell> {
    let racks = |racks: &u16| {
        let periods = if quick { 3 } else { 5 };
        Cell { racks: *racks, settling: RACKS_SETTLING, periods, ..Cell::new(System::KvSwitch, SKEW) }
    };
    // Quick leaves out what lies between.
    let mut cells: Vec<Cell> = RACKS.iter().step_by(if quick { 3 } else { 1 }).map(racks).collect();
    let each = |mix: Mix, skew: f64, systems: &[System]| {
        systems.iter().map(|system| Cell { mix, ..Cell::new(*system, skew) }).collect::<Vec<_>>()
    };
    cells.extend(SKEWS.iter().flat_map(|skew| each(Mix::GETS, *skew, &SYSTEMS)));
    cells.extend(BIG.iter().flat_map(|big| each(Mix { big: *big, ..Mix::GETS }, SKEW, &SYSTEMS[1..])));
    cells.extend(WRITES.iter().flat_map(|writes| each(Mix { writes: *writes, ..Mix::GETS }, SKEW, &SYSTEMS)));
    if kernel.is_some() && quick {
        // The model has the rest.
        cells.retain(|cell| cell.racks == 1 && cell.mix.big == 0.0 && [0.0, SKEW].contains(&cell.skew));
        cells.retain(|cell| [0.0, 0.2].contains(&cell.mix.writes) && cell.system != System::Original);
    }
    cells.into_iter().map(|cell| cell.at(kernel)).collect()
}

/// The figures of a metric, of the system under that much skew and those big values and writes.
fn find<'a>(
    all: &[&'a Measured],
    system: System,
    skew: f64,
    (big, writes): (f64, f64),
) -> Option<&'a Measured> {
    let is =
        |cell: &Cell| (cell.system, cell.skew, cell.mix.big, cell.mix.writes) == (system, skew, big, writes);
    all.iter().find(|measured| is(&measured.cell)).copied()
}

fn by_skew(all: &[&Measured]) -> Vec<Line> {
    let mut lines = Vec::new();
    for measured in all {
        let Cell { system, skew, .. } = measured.cell;
        let paper = match (system, skew) {
            (System::KvSwitch, 0.9) => Some(0.015),
            (System::KvSwitch, 0.95) => Some(0.013),
            (System::KvSwitch, 0.99) => Some(0.017),
            (System::KvSwitch | System::NetCache, 1.5) => Some(0.017),
            _ => None,
        };
        let goal = (system == System::KvSwitch && skew > 0.0).then_some(Goal::AtMost(0.017));
        lines.push(lambda(("7a", "skew", skew), measured).paper(paper).goal(goal));
    }
    for measured in all {
        let cell = &measured.cell;
        let paper = match (cell.system, cell.skew) {
            (_, 0.0) | (System::KvSwitch, _) => Some(15.4),
            (System::Original, 0.99) => Some(2.1),
            (System::NetCache, 0.99) => Some(19.0),
            _ => None,
        };
        lines.push(throughput(("7b", "skew", cell.skew), measured).paper(paper));
    }
    let pair = [SKEW, 0.0].map(|skew| find(all, System::KvSwitch, skew, (0.0, 0.0)));
    if let [Some(skewed), Some(uniform)] = pair {
        let kept = ratios(&skewed.throughputs(), &uniform.throughputs());
        let line =
            Line::of(("7b", "skew", SKEW), (&skewed.cell, "kvswitch"), ("throughput ÷ uniform", ""), kept);
        lines.push(line.paper(Some(1.0)).goal(Some(Goal::AtLeast(0.98))));
    }
    lines
}

fn throughput(key: (&'static str, &'static str, f64), measured: &Measured) -> Line {
    let cell = &measured.cell;
    Line::of(key, (cell, cell.system.name()), ("throughput", "M/s"), measured.throughputs())
}

fn by_big(all: &[&Measured]) -> Vec<Line> {
    let paper = |cell: &Cell, of_few: f64, of_many: f64| match (cell.system, cell.mix.big) {
        (System::NetCache, 0.0) => Some(of_few),
        (System::NetCache, 0.5) => Some(of_many),
        _ => None,
    };
    let key = |panel, cell: &Cell| (panel, "big values, %", 100.0 * cell.mix.big);
    let mut lines: Vec<Line> = Vec::new();
    for measured in all {
        let cell = &measured.cell;
        lines.push(lambda(key("7c", cell), measured).paper(paper(cell, 0.016, 0.24)));
    }
    if let [Some(none), Some(half)] = [0.0, 0.5].map(|big| find(all, System::KvSwitch, SKEW, (big, 0.0))) {
        let same = ratios(&half.lambdas, &none.lambdas);
        let line =
            Line::of(key("7c", &half.cell), (&half.cell, "kvswitch"), ("lambda ÷ without big", ""), same);
        lines.push(line.paper(Some(1.0)).goal(Some(Goal::AtMost(1.0))));
    }
    let throughputs = all.iter().map(|measured| {
        let cell = &measured.cell;
        throughput(key("7d", cell), measured).paper(paper(cell, 19.0, 8.1))
    });
    lines.extend(throughputs);
    lines
}

fn by_writes(all: &[&Measured]) -> Vec<Line> {
    let key = |cell: &Cell| ("7e", "writes, %", 100.0 * cell.mix.writes);
    let mut lines: Vec<Line> = all.iter().map(|measured| lambda(key(&measured.cell), measured)).collect();
    let pair = [System::KvSwitch, System::NetCache].map(|system| find(all, system, SKEW, (0.0, 0.2)));
    if let [Some(ours), Some(theirs)] = pair {
        let below = ratios(&ours.lambdas, &theirs.lambdas);
        let line = Line::of(key(&ours.cell), (&ours.cell, "kvswitch"), ("lambda ÷ netcache", ""), below);
        lines.push(line.goal(Some(Goal::AtMost(1.0))));
    }
    for measured in all {
        let cell = &measured.cell;
        lines.push(throughput(key(cell), measured));
        let ops = measured.ops_per_request();
        lines.push(Line::of(key(cell), (cell, cell.system.name()), ("ops per request of servers", ""), ops));
    }
    lines
}

fn notes(skews: &[&Measured]) -> Vec<String> {
    let mut notes = vec![format!(
        "lambda of a perfectly even load is {} by chance alone: the root of 2 ÷ πn",
        number(chance())
    )];
    if let Some(original) = find(skews, System::Original, SKEW, (0.0, 0.0)) {
        let median = |figures: Vec<f64>| number(Summary::of(figures).median);
        let top = Popularity::new(SKEW).share_of_first(1);
        notes.push(format!(
            "7b: the paper's 2.1 of 15.4 M/s at zipf 0.99 needs a server with {:.1} % of all requests. The hottest key has {:.1} %, with an even share of the rest {:.1} %: {} M/s until the first \
             server is full, {} M/s if 30 M/s are sent and each drops what is too much.",
            100.0 * 15.4 / 32.0 / 2.1,
            100.0 * top,
            100.0 * (top + (1.0 - top) / f64::from(SERVERS)),
            median(original.throughputs()),
            median(original.throughputs_with_drops()),
        ));
    }
    if let Some(netcache) = find(skews, System::NetCache, SKEW, (0.0, 0.0)) {
        let first = Popularity::new(SKEW).share_of_first(netcache.cell.config.keys_max);
        notes.push(format!(
            "7b, 7d: NetCache with {} keys answers {:.1} % of requests in the switch, so that servers carry {} M/s; the paper's 19.0 is less than its client's 30.",
            netcache.cell.config.keys_max,
            100.0 * first,
            number(15.4 / (1.0 - first)),
        ));
    }
    notes.push("7e: a write of a copied key is an op of each holder, which evens load out and costs throughput; throughput counts them.".into());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_keeps_the_ends_and_all_that_have_targets() {
        for quick in [false, true] {
            let cells = cells(quick, None);
            let has = |is: &dyn Fn(&Cell) -> bool| cells.iter().any(is);
            assert!(has(&|cell| cell.racks == 32) && has(&|cell| cell.mix.big == 0.5));
            for system in SYSTEMS {
                assert!(has(&|cell| cell.system == system && cell.mix.writes == 0.2));
                for skew in SKEWS {
                    assert!(has(&|cell| cell.system == system
                        && cell.skew == skew
                        && cell.mix.writes == 0.0));
                }
            }
        }
    }
}

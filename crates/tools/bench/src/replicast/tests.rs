//! The simulation beside what the paper prints, and what must hold of any run.

use super::cells::run;
use super::*;
use crate::replicast::tally::Outcome;

/// Every cell of Tables 2 and 3, means of eight seeds.
#[test]
fn all_cells_are_near_the_printed_ones() {
    let setups: Vec<Setup> =
        [Figure::Table2, Figure::Table3].iter().flat_map(|figure| figure.setups()).collect();
    let runs = measure(&setups, &SEEDS);
    let lines: Vec<Line> = runs.all.iter().flat_map(|measured| averages(("", "", 0.0), measured)).collect();
    assert_eq!(lines.len(), 54);
    let missed: Vec<_> = lines.iter().filter(|line| line.is_met() != Some(true)).map(Line::columns).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let refused: u64 =
        runs.all.iter().flat_map(|measured| &measured.outcomes).map(|outcome| outcome.tally.refused).sum();
    assert_eq!(refused, 0, "what the paper's tool does not bound is not bounded here");
    let notes = figures::order(&runs);
    assert_eq!(notes.len(), 1, "{notes:?}");
}

/// Without crossing it is the paper's tool run in one thread, of which these are means of seeds (128K).
#[test]
fn in_one_order_it_is_the_papers_tool_in_one_thread() {
    for (protocol, disk, chunks, latency) in [
        (Protocol::UchCcp, 400, 57_575.0, 1_404.0),
        (Protocol::M, 400, 79_300.0, 1_047.0),
        (Protocol::H, 400, 74_100.0, 1_130.0),
        (Protocol::UchCcp, 1_000, 108_175.0, 787.0),
        (Protocol::M, 1_000, 182_400.0, 475.0),
        (Protocol::H, 1_000, 129_825.0, 666.0),
    ] {
        let setup = Setup { crossing: 0, ..Setup::new(protocol, 128, disk) };
        let runs = measure(&[setup], &SEEDS);
        let [throughput, _, ours] = averages(("", "", 0.0), &runs.all[0]);
        for (ours, theirs) in [(throughput.mean(), chunks), (ours.mean(), latency)] {
            assert!((ours / theirs - 1.0).abs() < 0.03, "{setup:?}: {ours} beside {theirs}");
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    let same = |one: &Outcome, other: &Outcome| {
        (one.events, one.latencies_us.clone()) == (other.events, other.latencies_us.clone())
    };
    for protocol in Protocol::ALL {
        let all =
            Beyond { is_retried: true, is_hashed: true, gets_percent: 20, loss_ppm: 500, is_apart: true };
        for beyond in [Beyond::default(), all] {
            let setup = Setup { beyond, ..Setup::new(protocol, 128, 1_000) };
            let [first, again, other] = [1, 1, 2].map(|seed| run(&setup, seed));
            assert!(same(&first, &again) && !same(&first, &other), "{setup:?}");
        }
    }
}

/// One initiator meets nobody, so that its latency is a sum.
#[test]
fn alone_a_chunk_takes_what_its_parts_take() {
    let alone = |protocol| Setup { initiators: 1, ..Setup::new(protocol, 128, 1_000) };
    // Request, bid, accept's control message; the chunk; its last trip; the disk; the ack.
    let [control, trip, chunk, disk] = [2_424, 1_000, 117_681, 125_000];
    let once = 2 * (control + trip) + control + chunk + trip + disk + control + trip;
    let latencies = |protocol| run(&alone(protocol), 1).latencies_us;
    let near = |latency: f64, ns: u64| (latency * 1_000.0 - ns as f64).abs() < 1_000.0;
    let multicast = latencies(Protocol::M);
    assert!(multicast.iter().all(|latency| near(*latency, once)), "{multicast:?}");
    // Three times, or a little more where the group is asked again.
    let unicast = latencies(Protocol::H);
    assert!(unicast.iter().all(|latency| *latency > (once + 2 * chunk) as f64 / 1_000.0), "{unicast:?}");
    assert!(unicast.iter().all(|latency| *latency < (once + 3 * chunk) as f64 / 1_000.0), "{unicast:?}");
    // Of the whole link, with less to say; replicas follow each other by a request and an answer.
    let [hop, chunk] = [1_080, 105_910];
    let uch = latencies(Protocol::UchCcp);
    let three = 3 * (2 * hop + chunk) + trip + disk + hop;
    assert!(uch.iter().all(|latency| *latency * 1_000.0 > (three - 10_000) as f64), "{uch:?}");
    assert!(uch.iter().all(|latency| *latency * 1_000.0 < (three + 10_000) as f64), "{uch:?}");
}

#[test]
fn sizes_and_seeds_are_read() {
    assert_eq!(["1K", "128k", "1M", "16M"].map(parse_chunk), [Ok(1), Ok(128), Ok(1_024), Ok(16 << 10)]);
    for wrong in ["", "K", "0K", "17M", "16", "16é", "99999999999K", "5000000M"] {
        assert!(parse_chunk(wrong).is_err(), "{wrong}");
    }
    assert_eq!((parse_seeds("3..5"), parse_seeds("5..5")), (Ok(3..=5), Ok(5..=5)));
    assert!(["", "5", "5..3", "a..b", "1..=3"].iter().all(|wrong| parse_seeds(wrong).is_err()));
}

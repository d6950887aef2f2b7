//! The simulation beside the printed figures, and properties of any run.

use super::runs::run;
use super::*;
use crate::replicast_sim::metrics::Outcome;

/// Every cell of Tables 2 and 3, as means of eight seeds.
#[test]
fn all_cells_are_near_the_printed_ones() {
    let setups: Vec<Setup> =
        [Figure::Table2, Figure::Table3].iter().flat_map(|figure| figure.setups()).collect();
    let runs = measure(&setups, &SEEDS);
    let rows: Vec<Row> = runs.all.iter().flat_map(|measured| averages(("", "", 0.0), measured)).collect();
    assert_eq!(rows.len(), 54);
    let missed: Vec<_> = rows.iter().filter(|row| row.is_met() != Some(true)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let refused: u64 =
        runs.all.iter().flat_map(|measured| &measured.outcomes).map(|outcome| outcome.metrics.refused).sum();
    assert_eq!(refused, 0, "no bound of the reservations is reached");
    let notes = figures::order(&runs);
    assert_eq!(notes.len(), 1, "{notes:?}");
}

/// Without crossing it behaves as the paper's tool in one thread, whose means over seeds are listed
/// (128K).
#[test]
fn without_crossing_it_matches_the_papers_tool_in_one_thread() {
    for (protocol, disk, chunks, latency_us) in [
        (Protocol::UchCcp, 400, 57_575.0, 1_404.0),
        (Protocol::M, 400, 79_300.0, 1_047.0),
        (Protocol::H, 400, 74_100.0, 1_130.0),
        (Protocol::UchCcp, 1_000, 108_175.0, 787.0),
        (Protocol::M, 1_000, 182_400.0, 475.0),
        (Protocol::H, 1_000, 129_825.0, 666.0),
    ] {
        let setup = Setup { crossing: 0, ..Setup::new(protocol, 128, disk) };
        let runs = measure(&[setup], &SEEDS);
        let [throughput, _, latency] = averages(("", "", 0.0), &runs.all[0]);
        for (ours, theirs) in [(throughput.average(), chunks), (latency.average(), latency_us)] {
            assert!((ours / theirs - 1.0).abs() < 0.03, "{setup:?}: {ours} beside {theirs}");
        }
    }
}

#[test]
fn a_seed_determines_a_run() {
    let same = |one: &Outcome, other: &Outcome| {
        (one.events, one.latencies_us.clone()) == (other.events, other.latencies_us.clone())
    };
    for protocol in Protocol::ALL {
        let all =
            Extensions { is_retried: true, is_hashed: true, gets_percent: 20, loss_ppm: 500, is_apart: true };
        for extensions in [Extensions::default(), all] {
            let setup = Setup { extensions, ..Setup::new(protocol, 128, 1_000) };
            let [first, again, other] = [1, 1, 2].map(|seed| run(&setup, seed));
            assert!(same(&first, &again) && !same(&first, &other), "{setup:?}");
        }
    }
}

/// A single initiator meets no contention, so that its latency is a sum.
#[test]
fn latency_without_contention_is_the_sum_of_its_parts() {
    let alone = |protocol| Setup { initiators: 1, ..Setup::new(protocol, 128, 1_000) };
    // Request, bid, accept; the chunk; its last hop; the disk; the acknowledgement.
    let [control, trip, chunk, disk] = [2_424, 1_000, 117_681, 125_000];
    let once = 2 * (control + trip) + control + chunk + trip + disk + control + trip;
    let latencies = |protocol| run(&alone(protocol), 1).latencies_us;
    let near = |latency: f64, ns: u64| (latency * 1_000.0 - ns as f64).abs() < 1_000.0;
    let multicast = latencies(Protocol::M);
    assert!(multicast.iter().all(|latency| near(*latency, once)), "{multicast:?}");
    // Three times as long, or a little longer when the group is requested again.
    let unicast = latencies(Protocol::H);
    assert!(unicast.iter().all(|latency| *latency > (once + 2 * chunk) as f64 / 1_000.0), "{unicast:?}");
    assert!(unicast.iter().all(|latency| *latency < (once + 3 * chunk) as f64 / 1_000.0), "{unicast:?}");
    // With the whole link and shorter messages; replicas follow each other after a request and an
    // answer.
    let [hop, chunk] = [1_080, 105_910];
    let uch = latencies(Protocol::UchCcp);
    let three = 3 * (2 * hop + chunk) + trip + disk + hop;
    assert!(uch.iter().all(|latency| *latency * 1_000.0 > (three - 10_000) as f64), "{uch:?}");
    assert!(uch.iter().all(|latency| *latency * 1_000.0 < (three + 10_000) as f64), "{uch:?}");
}

#[test]
fn sizes_and_seeds_are_parsed() {
    assert_eq!(["1K", "128k", "1M", "16M"].map(parse_chunk), [Ok(1), Ok(128), Ok(1_024), Ok(16 << 10)]);
    for wrong in ["", "K", "0K", "17M", "16", "16é", "99999999999K", "5000000M"] {
        assert!(parse_chunk(wrong).is_err(), "{wrong}");
    }
    assert_eq!((parse_seeds("3..5"), parse_seeds("5..5")), (Ok(3..=5), Ok(5..=5)));
    assert!(["", "5", "5..3", "a..b", "1..=3"].iter().all(|wrong| parse_seeds(wrong).is_err()));
}

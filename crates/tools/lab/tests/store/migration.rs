//! Ordered keys of which the first are the most frequent: their partition is split under load, and
//! the parts move to other nodes (TurboKV §5.1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::LabUnderTest;
use crate::load::Redis;
use crate::{as_root_in_long_runs, succeeds, wait_for};

const KEYS: usize = 60;
/// Enough for a dozen periods of two seconds, and the moves between them.
const TIMEOUT: Duration = Duration::from_secs(120);
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A key for the `number`th call: the first keys are the most frequent, by Zipf's law.
fn key(number: usize) -> String {
    let sum = |rank: usize| (1..=rank).map(|rank| 1.0 / rank as f64).sum::<f64>();
    // Evenly spread over the sum of all weights.
    let at = (number as f64 * 0.618_034).fract() * sum(KEYS);
    let rank = (1..=KEYS).find(|rank| sum(*rank) > at).unwrap_or(KEYS);
    format!("key-{rank:03}")
}

/// Gets keys, and sets one in every fourth call, until it is stopped. No operation may fail.
/// Returns the number of calls.
fn ask(lab: &LabUnderTest, client: usize, stopped: &AtomicBool) -> usize {
    let mut redis = Redis::on(lab, &format!("client-{client}"));
    assert_eq!(redis.ask(&["SELECT", "1"]), Ok("OK".into()));
    for number in 0.. {
        if stopped.load(Ordering::Relaxed) {
            return number;
        }
        let key = key(number * 2 + client);
        match number % 4 {
            0 => assert_eq!(redis.ask(&["SET", &key, "value"]), Ok("OK".into()), "{key}"),
            _ => assert_eq!(redis.ask(&["GET", &key]), Ok("value".into()), "{key}"),
        }
    }
    0
}

fn told(lab: &LabUnderTest) -> Value {
    let told: Value = serde_json::from_str(&succeeds(lab, &["partition", "balance", "--json"])).unwrap();
    told[0].clone()
}

#[test]
fn hot_ordered_keys_are_spread_and_no_operation_fails() {
    as_root_in_long_runs("hot_ordered_keys_are_spread_and_no_operation_fails", || {
        let keyspace = "orders=partitioning=range,partitions=2,replicas=2,balancing=migrate";
        let nodes = ["--nodes", "6", "--clients", "2", "--engine", "memory"];
        let lab = LabUnderTest::up("migration", &[&nodes[..], &["--keyspace", keyspace]].concat());
        // The default period of ten seconds is long for a test.
        let config = std::fs::read_to_string(lab.config()).unwrap();
        let shorter = config.replace("balance_period_ms = 10000", "balance_period_ms = 2000");
        assert_ne!(shorter, config);
        std::fs::write(lab.config(), shorter).unwrap();
        lab.succeeds(&["kill", "metadata"]);
        lab.succeeds(&["start", "metadata"]);
        wait_for(&lab, |status| status["ready"] == true);
        let mut redis = Redis::on(&lab, "client-0");
        assert_eq!(redis.ask(&["SELECT", "1"]), Ok("OK".into()));
        for rank in 1..=KEYS {
            assert_eq!(redis.ask(&["SET", &format!("key-{rank:03}"), "value"]), Ok("OK".into()));
        }
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..2)
                .map(|client| {
                    let (lab, stopped) = (&lab, &stopped);
                    scope.spawn(move || ask(lab, client, stopped))
                })
                .collect();
            let (began, mut percents) = (Instant::now(), Vec::new());
            while began.elapsed() < TIMEOUT && clients.iter().all(|client| !client.is_finished()) {
                std::thread::sleep(LOOK_PAUSE);
                let percent = told(&lab)["hottest"][1].as_u64();
                percents.extend(percent.filter(|percent| percents.last() != Some(percent)));
                if percents.last().is_some_and(|percent| *percent <= 130) {
                    break;
                }
            }
            stopped.store(true, Ordering::Relaxed);
            let asked: Vec<usize> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            println!("{:.0?}: {asked:?} operations; {percents:?} % of the mean", began.elapsed());
            assert!(percents.first().is_some_and(|percent| *percent >= 250), "{percents:?}");
            assert!(percents.last().is_some_and(|percent| *percent <= 130), "{:#}", told(&lab));
        });
        let told = told(&lab);
        assert!(told["splits"].as_u64() > Some(0) && told["moves"].as_u64() > Some(0), "{told:#}");
        let shown = succeeds(&lab, &["partition", "balance"]);
        assert!(shown.contains("is split at") && shown.contains(" goes from "), "{shown}");
        lab.down();
    });
}

//! Routing of requests.

use super::*;
use crate::kvswitch::popularity::key;
use nicekv_hotkeys::imbalance;

const SERVERS: u16 = 8;

fn rack(system: System) -> Rack {
    let config = Config { keys_max: 64, ..Config::default() };
    Rack::new(Setup { system, config, servers: SERVERS, confirm_requests: 10 }, 1)
}

fn get(rank: u32) -> Request {
    Request { key: key(rank), owner: (rank % u32::from(SERVERS)) as u16, is_write: false, is_big: false }
}

/// A period in which half of all requests are for the key of rank 1.
fn half_for_one(rack: &mut Rack) -> Period {
    for number in 0..40_000 {
        rack.request(get(if number % 2 == 0 { 1 } else { number / 2 }));
    }
    rack.end_period(|_| 1)
}

/// Requests until new entries are open.
fn pass(rack: &mut Rack) {
    for _ in 0..10 {
        rack.request(get(0));
    }
}

#[test]
fn every_request_is_counted_once() {
    for system in [System::Original, System::NetCache, System::KvSwitch, System::Everywhere] {
        let mut rack = rack(system);
        let periods: Vec<Period> = (0..3).map(|_| half_for_one(&mut rack)).collect();
        for period in &periods {
            assert_eq!(period.requests, 40_000);
            assert_eq!(period.loads.iter().sum::<u64>() + period.absorbed, 40_000, "{system:?}");
        }
        assert_eq!(periods[2].absorbed > 19_000, system == System::NetCache);
        let is_even = imbalance(&periods[2].loads) < 0.05;
        assert_eq!(is_even, system != System::Original, "{system:?}: {:?}", periods[2].loads);
    }
}

#[test]
fn copies_are_closed_until_they_confirm_a_write() {
    let mut rack = rack(System::KvSwitch);
    (0..3).for_each(|_| drop(half_for_one(&mut rack)));
    let holders = rack.live[&key(1)].holders.len() as u64;
    assert_eq!(holders, u64::from(SERVERS));
    pass(&mut rack);
    let before: u64 = rack.loads.iter().sum();
    assert_eq!(rack.request(Request { is_write: true, ..get(1) }), Some(1));
    assert_eq!(rack.loads.iter().sum::<u64>() - before, holders);
    assert!((1..10).all(|_| rack.request(get(1)) == Some(1)), "gets go to the owner");
    let others = (0..holders).filter(|_| rack.request(get(1)) != Some(1)).count();
    assert_eq!(others as u64, holders - 1, "then to all holders in turn");
}

#[test]
fn a_switch_answers_its_values_but_no_big_ones() {
    let mut rack = rack(System::NetCache);
    (0..3).for_each(|_| drop(half_for_one(&mut rack)));
    pass(&mut rack);
    assert_eq!(rack.request(get(1)), None);
    assert_eq!(rack.request(Request { is_big: true, ..get(1) }), Some(1));
    assert_eq!(rack.request(Request { is_write: true, ..get(1) }), Some(1));
    assert_eq!(rack.request(get(1)), Some(1), "the value in the switch is outdated");
}

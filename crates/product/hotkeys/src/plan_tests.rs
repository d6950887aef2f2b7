//! Tests: how entries change from period to period.

use super::*;
use crate::key::tests::key;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SERVERS: u16 = 8;
const ALL: Ring<'static> = Ring { available: &[true; SERVERS as usize] };

fn config() -> Config {
    Config { keys_max: 100, imbalance_max_ppm: 300_000, requests_min: 10, values_max: 0, ..Config::default() }
}

fn owner(key: &HotKey) -> Option<u16> {
    Some((key.digest.match_value() % u128::from(SERVERS)) as u16)
}

/// A rack of servers. Each gets 10,000 requests, plus those for the test's keys, which the table
/// spreads.
struct Rack {
    config: Config,
    state: State,
}

impl Rack {
    fn new(config: Config) -> Self {
        Self { state: State::new(&config), config }
    }

    fn period(&mut self, requests: &[(u64, u64)]) -> Vec<Change> {
        let mut loads = [10_000; SERVERS as usize];
        let (mut hot, mut candidates) = (Vec::new(), Vec::new());
        for (number, count) in requests {
            let key = key(*number);
            let entry = self.state.table.get(&key);
            let holders = entry.map_or_else(|| vec![owner(&key).unwrap()], |entry| entry.holders.clone());
            for holder in &holders {
                loads[usize::from(*holder)] += count / holders.len() as u64;
            }
            (if entry.is_some() { &mut hot } else { &mut candidates }).push((key, *count));
        }
        let report = PeriodReport { loads: &loads, hot: &hot, candidates: &candidates };
        let plan = plan(&self.config, &self.state, &report, &ALL, owner);
        assert_eq!(plan.refused, 0);
        self.state = plan.state;
        plan.changes
    }

    fn holders(&self, number: u64) -> usize {
        self.state.table.get(&key(number)).map_or(0, |entry| entry.holders.len())
    }
}

fn kinds(changes: &[Change]) -> Vec<(HotKey, ChangeKind)> {
    changes.iter().map(|change| (change.key, change.kind)).collect()
}

#[test]
fn hot_key_is_spread_after_two_periods_and_removed_three_after_it_cools() {
    let mut rack = Rack::new(config());
    rack.period(&[]);
    assert_eq!(kinds(&rack.period(&[(3, 50_000)])), [(key(3), ChangeKind::Installed)]);
    rack.period(&[(3, 50_000)]);
    assert_eq!(rack.holders(3), usize::from(SERVERS), "its load asks for all servers");
    let cold: Vec<Vec<Change>> = (0..3).map(|_| rack.period(&[])).collect();
    assert_eq!(rack.holders(3), 0);
    assert_eq!(kinds(&cold.concat()).last(), Some(&(key(3), ChangeKind::Removed)));
    assert_eq!(rack.state.previous.len(), 0, "no count of the key is left");
}

#[test]
fn key_below_the_threshold_is_counted_and_not_copied() {
    let mut rack = Rack::new(config());
    // T is a tenth of the mean load of 10,000.
    assert_eq!(kinds(&rack.period(&[(3, 100), (4, 9)])), [(key(3), ChangeKind::Watched)]);
    assert_eq!(rack.state.table[&key(3)].holders, [3]);
    assert_eq!(kinds(&rack.period(&[(3, 3_000)])), [(key(3), ChangeKind::Installed)]);
    assert_eq!(kinds(&rack.period(&[(3, 9_000)])), [(key(3), ChangeKind::Grown)]);
    assert_eq!(kinds(&rack.period(&[(3, 100)])), [(key(3), ChangeKind::Shrunk)]);
    assert_eq!(kinds(&rack.period(&[(3, 100)])), [(key(3), ChangeKind::Withdrawn)]);
    assert_eq!(kinds(&rack.period(&[])), [], "the prediction is half of the previous 100");
    assert_eq!(kinds(&rack.period(&[])), [(key(3), ChangeKind::Removed)]);
}

#[test]
fn chance_changes_no_holders() {
    let mut rack = Rack::new(Config { threshold_start_ppm: 5_000, ..config() });
    let (mut changes, mut state) = (0, 1_u64);
    // T is 50 requests. The loads are one to six times T, each at a border, and the counts scatter
    // randomly.
    for period in 0..300 {
        let scattered = |number: u64, state: &mut u64| {
            let mean = number * 50;
            *state = crate::key::mix(*state + 1);
            let sum: u64 = (0..8).map(|byte| *state >> (8 * byte) & 0xff).sum();
            // A sum of eight random bytes has a standard deviation of 209.
            mean.saturating_add_signed((sum as i64 - 1_020) * (mean.isqrt() as i64) / 209)
        };
        let requests: Vec<(u64, u64)> =
            (1..=6).map(|number| (number, scattered(number, &mut state))).collect();
        let changed = rack.period(&requests).len();
        changes += if period < 20 { 0 } else { changed };
    }
    assert!(changes <= 17, "{changes} changes of 6 keys in 280 periods, one in a hundred");
}

#[test]
fn full_table_holds_the_highest_keys_and_challengers_must_be_clearly_higher() {
    let mut rack = Rack::new(Config { keys_max: 4, ..config() });
    let requests: Vec<(u64, u64)> = (1..=9).map(|number| (number, number * 100)).collect();
    for _ in 0..3 {
        rack.period(&requests);
    }
    let entries = |rack: &Rack| rack.state.table.keys().copied().collect::<Vec<_>>();
    assert_eq!(entries(&rack), [6, 7, 8, 9].map(key));
    // 620 against 600 may be chance, 900 may not.
    assert_eq!(kinds(&rack.period(&[(5, 620), (6, 600), (7, 700), (8, 800), (9, 900)])), []);
    for _ in 0..2 {
        rack.period(&[(5, 900), (6, 600), (7, 700), (8, 800), (9, 900)]);
    }
    assert_eq!(entries(&rack), [5, 7, 8, 9].map(key));
}

#[test]
fn unavailable_holders_are_replaced_and_new_owners_followed() {
    let mut rack = Rack::new(config());
    for _ in 0..6 {
        rack.period(&[(3, 3_000)]);
    }
    let entry = rack.state.table[&key(3)].clone();
    let away = entry.holders[1];
    let available: Vec<bool> = (0..SERVERS).map(|server| server != away).collect();
    let (ring, hot) = (Ring { available: &available }, [(key(3), 3_000)]);
    let report = PeriodReport { loads: &[10_000; SERVERS as usize], hot: &hot, candidates: &[] };
    let plan_with = |ring: &Ring<'_>, owner: fn(&HotKey) -> Option<u16>| {
        plan(&rack.config, &rack.state, &report, ring, owner)
    };
    let replaced = plan_with(&ring, owner);
    assert_eq!(kinds(&replaced.changes), [(key(3), ChangeKind::Moved)]);
    let holders = &replaced.changes[0].holders;
    assert!(!holders.contains(&away) && holders[0] == 3 && holders.len() == entry.holders.len());
    let followed = plan_with(&ALL, |_| Some(6));
    assert_eq!(
        (kinds(&followed.changes), followed.changes[0].holders[0]),
        (vec![(key(3), ChangeKind::Moved)], 6)
    );
    for nobodys in [plan_with(&ALL, |_| None), plan_with(&ALL, |_| Some(SERVERS))] {
        assert_eq!((kinds(&nobodys.changes), nobodys.refused), (vec![(key(3), ChangeKind::Removed)], 1));
    }
}

/// Keys with a copy in the switch.
fn in_switch(rack: &Rack) -> Vec<HotKey> {
    rack.state.table.iter().filter(|(_, entry)| entry.in_switch).map(|(key, _)| *key).collect()
}

#[test]
fn switch_holds_the_highest_keys_above_t_and_challengers_must_be_clearly_higher() {
    let mut rack = Rack::new(Config { values_max: 2, ..config() });
    let requests = [(1, 9_000), (2, 8_000), (3, 7_000), (4, 100)];
    rack.period(&requests);
    assert_eq!(in_switch(&rack), [1, 2].map(key));
    assert_eq!(rack.holders(1), 7, "the key's holders do not change");
    // 8,300 exceeds 8,000 by less than the slack.
    for third in [8_300, 7_000, 8_300, 8_300] {
        rack.period(&[(1, 9_000), (2, 8_000), (3, third), (4, 100)]);
        assert_eq!(in_switch(&rack), [1, 2].map(key));
    }
    let changes: Vec<Change> =
        (0..2).flat_map(|_| rack.period(&[(1, 9_000), (2, 8_000), (3, 10_000), (4, 100)])).collect();
    assert_eq!(in_switch(&rack), [1, 3].map(key));
    let of_second: Vec<ChangeKind> = changes.iter().filter(|it| it.key == key(2)).map(|it| it.kind).collect();
    assert_eq!(of_second, [ChangeKind::Switched]);
    // Only the first key is above T, although the switch has room for more.
    for _ in 0..3 {
        rack.period(&[(1, 9_000), (2, 300), (3, 300), (4, 100)]);
    }
    assert_eq!(in_switch(&rack), [key(1)]);
}

#[test]
fn copy_in_the_switch_does_not_flap_at_t() {
    let mut rack = Rack::new(Config { values_max: 8, ..config() });
    // T is a tenth of the mean load of about 10,400.
    let kinds: Vec<ChangeKind> = (0..20)
        .flat_map(|period| rack.period(&[(3, 3_000), (4, 1_040 + 15 * (period % 3))]))
        .filter(|change| change.key == key(4))
        .map(|change| change.kind)
        .collect();
    assert!(kinds.len() <= 2 && in_switch(&rack) == [3, 4].map(key), "{kinds:?}");
}

#[test]
fn without_server_copies_the_switch_holds_the_highest_keys_as_in_netcache() {
    let mut rack = Rack::new(Config { values_max: 3, holders_max: 0, ..config() });
    let kinds_of = |changes: &[Change]| kinds(changes);
    // All loads except the first are far below T.
    let requests = [(1, 20_000), (2, 90), (3, 80), (4, 70), (5, 5)];
    assert_eq!(
        kinds_of(&rack.period(&requests)),
        [
            (key(1), ChangeKind::Installed),
            (key(2), ChangeKind::Installed),
            (key(3), ChangeKind::Installed),
            (key(4), ChangeKind::Watched)
        ]
    );
    for _ in 0..10 {
        rack.period(&requests);
    }
    assert_eq!(in_switch(&rack), [1, 2, 3].map(key));
    assert!(rack.state.table.values().all(|entry| !entry.is_copied()), "whatever T is");
    // A key turns cold, and another one takes its place in the switch.
    let changes: Vec<Change> = (0..4).flat_map(|_| rack.period(&[(1, 20_000), (3, 80), (4, 70)])).collect();
    assert_eq!((in_switch(&rack), rack.holders(2)), ([1, 3, 4].map(key).to_vec(), 0));
    assert!(changes.iter().any(|change| (change.key, change.kind) == (key(4), ChangeKind::Installed)));
}

#[test]
fn holders_are_bounded() {
    let mut rack = Rack::new(Config { holders_max: 2, ..config() });
    let changes: Vec<Change> =
        (0..10).flat_map(|period| rack.period(&[(3, 50_000 + 5_000 * (period % 2))])).collect();
    assert_eq!((rack.holders(3), kinds(&changes)), (3, vec![(key(3), ChangeKind::Installed)]));
}

#[test]
fn any_report_yields_a_bounded_table() {
    let config = config();
    let candidates: Vec<_> = (0..10_000).map(|number| (key(number), u64::MAX)).collect();
    let loads = [u64::MAX; SERVERS as usize];
    let mut state = State::new(&config);
    for _ in 0..3 {
        let report = PeriodReport { loads: &loads, hot: &candidates, candidates: &candidates };
        state = plan(&config, &state, &report, &ALL, owner).state;
        assert_eq!(state.table.len(), 100);
        assert!(state.previous.len() <= 200);
    }
    let nothing = PeriodReport { loads: &[], hot: &[], candidates: &[] };
    let nobody = Ring { available: &[] };
    assert_eq!(plan(&config, &state, &nothing, &nobody, owner).state.table.len(), 0);
}

/// Requests of several periods, as keys and counts.
fn periods() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
    let request = (0_u64..40, prop_oneof![0_u64..20, 0_u64..2_000, 0_u64..200_000]);
    prop::collection::vec(prop::collection::vec(request, 0..40), 1..12)
}

proptest! {
    #[test]
    fn changes_lead_from_table_to_table_and_entries_are_valid(periods in periods(), keys_max in 4_u32..30, values_max in 0_u32..6, holders_max in 0_u32..9) {
        let mut rack = Rack::new(Config { keys_max, values_max, holders_max, ..config() });
        let mut table: BTreeMap<HotKey, Entry> = BTreeMap::new();
        for requests in periods {
            let requests: BTreeMap<u64, u64> = requests.into_iter().collect();
            let changes = rack.period(&requests.into_iter().collect::<Vec<_>>());
            let keys: BTreeSet<HotKey> = changes.iter().map(|change| change.key).collect();
            prop_assert_eq!(keys.len(), changes.len(), "a key changes once");
            for Change { key, kind, holders, in_switch } in changes {
                let spread = |entry: &Entry| (entry.holders.len(), entry.in_switch);
                let entry = Entry { holders, in_switch };
                let (after, is_gone) = (spread(&entry), entry.holders.is_empty());
                let before = if is_gone { table.remove(&key) } else { table.insert(key, entry) };
                let before = before.map_or((0, false), |before| spread(&before));
                let spreads = |(holders, in_switch): (usize, bool)| holders > 1 || in_switch;
                let both = spreads(before) && spreads(after);
                let is_so = match kind {
                    ChangeKind::Watched => (before, after) == ((0, false), (1, false)),
                    ChangeKind::Installed => !spreads(before) && spreads(after),
                    ChangeKind::Grown => both && before.0 < after.0,
                    ChangeKind::Shrunk => both && before.0 > after.0,
                    ChangeKind::Switched => both && before.0 == after.0 && before.1 != after.1,
                    ChangeKind::Moved => false,
                    ChangeKind::Withdrawn => spreads(before) && after == (1, false),
                    ChangeKind::Removed => before.0 > 0 && after == (0, false),
                };
                prop_assert!(is_so, "{:?} from {:?} to {:?}", kind, before, after);
            }
            let state = &rack.state;
            prop_assert_eq!(&table, &state.table);
            prop_assert!(table.values().filter(|entry| entry.in_switch).count() <= values_max as usize);
            prop_assert!(table.len() <= keys_max as usize && state.previous.len() <= 2 * keys_max as usize);
            for (key, Entry { holders, .. }) in &table {
                prop_assert!(holders.len() <= holders_max as usize + 1);
                let distinct: BTreeSet<_> = holders.iter().collect();
                prop_assert_eq!((distinct.len(), Some(holders[0])), (holders.len(), owner(key)));
                prop_assert!(holders.iter().all(|holder| *holder < SERVERS));
            }
        }
    }
}

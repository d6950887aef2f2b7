//! Which switches have the newest tables, and which requests they get when.

use nicekv_switch::control::{ControlReply, ControlRequest};
use nicekv_switch::{HostId, Prefix, TableSet, TableStatus, UnicastEntry};

use crate::config::{SwitchId, Timing};
use crate::observe::Switches;
use core::time::Duration;

const MS: u64 = 1_000_000;
const START: u64 = 1_000 * MS;
const SWITCHES: [SwitchId; 2] = [SwitchId(0), SwitchId(1)];
const INTERVAL: u64 = 200 * MS;
const TERM: u64 = 3;

/// Two connected switches, and tables to install.
fn switches() -> Switches {
    let timing = Timing { count_interval: Duration::ZERO, ..Timing::default() };
    assert_eq!(timing.switch_interval, Duration::from_nanos(INTERVAL));
    let mut switches = Switches::new(&SWITCHES, Default::default(), &timing);
    SWITCHES.iter().for_each(|&id| switches.handle_connected(id));
    assert_eq!(switches.poll(START, TERM), None, "no request without tables to install");
    assert!(!switches.all_current());
    switches.set_tables(TableSet::default());
    switches
}

/// The requests that are due: the switch, and whether it is an install.
fn asked(switches: &mut Switches, now_ns: u64) -> Vec<(u16, bool)> {
    let asked = std::iter::from_fn(|| switches.poll(now_ns, TERM));
    asked.map(|(id, request)| (id.0, matches!(request, ControlRequest::Install { term: TERM, .. }))).collect()
}

fn installed(switches: &mut Switches, id: SwitchId, term: u64, generation: u64) {
    switches.handle_reply(START, id, TERM, ControlReply::Installed { term, generation });
}

fn current(switches: &Switches) -> Vec<bool> {
    switches.status().iter().map(|status| status.current).collect()
}

#[test]
fn switch_is_current_after_acknowledging_the_newest_tables() {
    let mut switches = switches();
    assert_eq!(asked(&mut switches, START), [(0, true), (0, false), (1, true), (1, false)]);
    assert_eq!(asked(&mut switches, START + INTERVAL - 1), []);
    assert_eq!(asked(&mut switches, START + INTERVAL), [(0, true), (0, false), (1, true), (1, false)]);
    for (id, term, generation) in [(SWITCHES[0], TERM - 1, 1), (SWITCHES[0], TERM, 2), (SwitchId(9), TERM, 1)]
    {
        installed(&mut switches, id, term, generation);
        assert_eq!(current(&switches), [false, false]);
    }
    installed(&mut switches, SWITCHES[0], TERM, 1);
    assert_eq!((current(&switches), switches.all_current()), (vec![true, false], false));
    assert_eq!(switches.why_not_ready().as_deref(), Some("switch 1 has not acknowledged its tables"));
    installed(&mut switches, SWITCHES[1], TERM, 1);
    assert_eq!(
        (current(&switches), switches.all_current(), switches.why_not_ready()),
        (vec![true; 2], true, None)
    );
    // The status is requested again at once, but the tables are not sent again.
    assert_eq!(asked(&mut switches, START + INTERVAL + 1), [(0, false), (1, false)]);
    // Newer tables are due at once, and an acknowledgement of older ones does not count.
    let destination = Prefix::new([10, 10, 0, 0], 16);
    let entry = UnicastEntry { destination, partition: 0, host: HostId(1), chain: None };
    let newer = TableSet { unicast: vec![entry], ..TableSet::default() };
    switches.set_tables(newer.clone());
    assert!(!switches.all_current());
    installed(&mut switches, SWITCHES[0], TERM, 1);
    assert_eq!(current(&switches), [false, false]);
    assert_eq!(asked(&mut switches, START + INTERVAL + 2), [(0, true), (1, true)]);
    SWITCHES.iter().for_each(|&id| installed(&mut switches, id, TERM, 2));
    installed(&mut switches, SWITCHES[0], TERM, 1);
    assert!(switches.all_current(), "a late acknowledgement of older tables changes nothing");
    // Setting the same tables again makes no new generation.
    switches.set_tables(newer);
    assert!(switches.all_current());
}

fn status(generation: Option<u64>, tables: Vec<TableStatus>) -> ControlReply {
    ControlReply::Status { term: TERM, generation, tables, counters: Default::default() }
}

#[test]
fn switch_that_lost_its_tables_gets_the_newest() {
    let mut switches = switches();
    asked(&mut switches, START);
    SWITCHES.iter().for_each(|&id| installed(&mut switches, id, TERM, 1));
    switches.handle_reply(START, SWITCHES[0], TERM, status(Some(1), vec![]));
    assert_eq!(current(&switches), [true, true]);
    switches.handle_reply(START, SWITCHES[0], TERM, status(None, vec![]));
    assert_eq!((current(&switches), switches.all_current()), (vec![false, true], true));
    assert_eq!(switches.why_not_ready().as_deref(), Some("switch 0 has not acknowledged its tables"));
    assert_eq!(asked(&mut switches, START + INTERVAL), [(0, true), (0, false), (1, false)]);
    installed(&mut switches, SWITCHES[0], TERM, 1);
    assert_eq!(current(&switches), [true, true]);
    // After a new connection the tables of the agent are unknown.
    switches.handle_disconnected(SWITCHES[1]);
    assert!(
        !switches.is_connected(SWITCHES[1]) && switches.is_connected(SWITCHES[0]) && switches.all_current()
    );
    assert_eq!(switches.why_not_ready().as_deref(), Some("switch 1 is not connected"));
    assert_eq!(asked(&mut switches, START + 2 * INTERVAL), [(0, false)]);
    switches.handle_connected(SWITCHES[1]);
    assert_eq!((current(&switches), switches.all_current()), (vec![true, false], true));
    assert_eq!(asked(&mut switches, START + 2 * INTERVAL), [(1, true), (1, false)]);
}

#[test]
fn refusal_is_reported_until_it_is_resolved() {
    let mut switches = switches();
    let failed = |generation| ControlReply::Failed { generation, reason: "a table is full".into() };
    switches.handle_reply(START, SWITCHES[0], TERM, failed(2));
    assert_eq!(switches.status()[0].error, None, "a refusal of older tables is not reported");
    switches.handle_reply(START, SWITCHES[0], TERM, failed(1));
    assert_eq!(switches.status()[0].error.as_deref(), Some("a table is full"));
    assert_eq!(switches.why_not_ready().as_deref(), Some("switch 0 refused its tables: a table is full"));
    installed(&mut switches, SWITCHES[0], TERM, 1);
    assert_eq!(switches.status()[0].error, None);
    let refused = |current_term| ControlReply::Refused { current_term };
    switches.handle_reply(START, SWITCHES[1], TERM, refused(TERM));
    assert_eq!(switches.why_not_ready().as_deref(), Some("switch 1 has not acknowledged its tables"));
    switches.handle_reply(START, SWITCHES[1], TERM, refused(TERM + 1));
    assert_eq!(
        switches.why_not_ready().as_deref(),
        Some("a switch obeys a newer metadata leader, of term 4")
    );
}

#[test]
fn status_combines_the_tables_of_switches() {
    let mut switches = switches();
    let table = |entries, capacity, hits| TableStatus { name: "a table".into(), entries, capacity, hits };
    let (first, second) = (table(3, 10, 100), table(5, 8, 20));
    let none = switches.table_status();
    assert!(!none.is_empty() && none.iter().all(|table| table.hits == 0));
    switches.handle_reply(START, SWITCHES[0], TERM, status(Some(1), vec![first.clone()]));
    switches.handle_reply(START, SWITCHES[1], TERM, status(Some(1), vec![second]));
    let [sum] = &switches.table_status()[..] else { panic!("one table") };
    assert_eq!((sum.entries, sum.capacity, sum.hits), (5, 8, 120));
}

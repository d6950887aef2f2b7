//! Terms, generations, updates and registers, tested on an agent of the reference pipeline.

use super::super::lookup::Met;
use super::*;
use crate::{
    DivisionEntry, Hop, Host, HostId, MemberSet, MulticastEntry, Prefix, Route, Router, UnicastEntry,
    VringConfig,
};

fn tables(generation: u64, host: u8) -> TableSet {
    TableSet {
        generation,
        trunks: vec![],
        hosts: vec![Host::node(host.into())],
        unicast: vec![UnicastEntry {
            destination: VringConfig::DEFAULT.unicast,
            partition: 0,
            host: HostId(host.into()),
            chain: None,
        }],
        ..TableSet::default()
    }
}

fn agent() -> SwitchAgent<Router> {
    SwitchAgent::new(Router::new(VringConfig::DEFAULT).unwrap(), 0)
}

fn routed_to(agent: &mut SwitchAgent<Router>) -> Option<u16> {
    match agent.backend_mut().route([10, 0, 0, 9], [10, 10, 0, 1], None) {
        Route::Unicast(hop) => hop.and_then(Hop::host).map(|host| host.0),
        Route::Miss => None,
        route => panic!("{route:?}"),
    }
}

#[test]
fn older_terms_and_generations_are_refused() {
    let mut agent = agent();
    assert_eq!(routed_to(&mut agent), None, "no tables at start");
    let install = |term, generation, host| ControlRequest::Install { term, tables: tables(generation, host) };
    assert_eq!(agent.handle(install(5, 7, 1)), ControlReply::Installed { term: 5, generation: 7 });
    assert_eq!(agent.handle(install(4, 9, 2)), ControlReply::Refused { current_term: 5 });
    assert_eq!(agent.handle(ControlRequest::Status { term: 4 }), ControlReply::Refused { current_term: 5 });
    assert!(matches!(agent.handle(install(5, 6, 2)), ControlReply::Failed { generation: 6, .. }));
    assert!(matches!(agent.handle(install(5, 7, 2)), ControlReply::Failed { generation: 7, .. }));
    assert_eq!(routed_to(&mut agent), Some(1));
    // The controller repeats a request whose reply was lost.
    assert_eq!(agent.handle(install(5, 7, 1)), ControlReply::Installed { term: 5, generation: 7 });
    // A newer controller may start with a lower generation. It fences off the older controller
    // merely by asking for the status.
    assert!(matches!(
        agent.handle(ControlRequest::Status { term: 6 }),
        ControlReply::Status { term: 6, generation: Some(7), .. }
    ));
    assert_eq!(agent.handle(install(5, 8, 2)), ControlReply::Refused { current_term: 6 });
    assert_eq!(agent.handle(install(6, 1, 2)), ControlReply::Installed { term: 6, generation: 1 });
    assert_eq!(routed_to(&mut agent), Some(2));
}

#[test]
fn failed_install_keeps_the_old_tables() {
    let mut agent = agent();
    agent.handle(ControlRequest::Install { term: 1, tables: tables(1, 1) });
    let mut full = tables(2, 2);
    full.unicast = vec![full.unicast[0]; 4097];
    let reply = agent.handle(ControlRequest::Install { term: 1, tables: full });
    let ControlReply::Failed { generation: 2, reason } = reply else { panic!("{reply:?}") };
    assert!(reason.contains("unicast_vring") && reason.contains("4096"), "{reason}");
    assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(1)));
    let reply = agent.handle(ControlRequest::Install { term: 1, tables: tables(2, 2) });
    assert_eq!(reply, ControlReply::Installed { term: 1, generation: 2 });
    assert_eq!(routed_to(&mut agent), Some(2));
}

#[test]
fn restarted_agent_keeps_its_term() {
    let mut agent = SwitchAgent::new(Router::new(VringConfig::DEFAULT).unwrap(), 9);
    let request = ControlRequest::Install { term: 8, tables: tables(1, 1) };
    assert_eq!(agent.handle(request), ControlReply::Refused { current_term: 9 });
}

#[test]
fn update_needs_the_base_of_the_same_term_and_may_be_repeated() {
    let mut agent = agent();
    let update = |base, generation, host| {
        let to = tables(generation, host);
        let from = TableSet { generation: base, hosts: to.hosts.clone(), ..TableSet::default() };
        TableUpdate::between(&from, &to).expect("one table differs")
    };
    let request = |term, update| ControlRequest::Update { term, update };
    let failed = |reply| matches!(reply, ControlReply::Failed { .. });
    assert!(failed(agent.handle(request(5, update(7, 8, 1)))), "nothing is installed");
    let empty = TableSet { unicast: vec![], ..tables(7, 1) };
    agent.handle(ControlRequest::Install { term: 5, tables: empty });
    assert!(failed(agent.handle(request(5, update(7, 7, 1)))), "the generation must rise");
    for _ in 0..2 {
        let reply = agent.handle(request(5, update(7, 8, 1)));
        assert_eq!(reply, ControlReply::Installed { term: 5, generation: 8 });
        assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(8)));
    }
    // Installing the same tables as a whole is accepted as a repetition.
    let whole = ControlRequest::Install { term: 5, tables: tables(8, 1) };
    assert_eq!(agent.handle(whole), ControlReply::Installed { term: 5, generation: 8 });
    assert!(failed(agent.handle(request(5, update(8, 9, 2)))), "the update names an unknown host");
    assert!(failed(agent.handle(request(6, update(8, 9, 1)))), "term 6 has installed nothing yet");
    assert_eq!(agent.handle(request(5, update(8, 9, 1))), ControlReply::Refused { current_term: 6 });
    assert_eq!((routed_to(&mut agent), agent.generation()), (Some(1), Some(8)));
}

#[test]
fn only_the_newest_controller_uses_registers() {
    let (mut agent, register) = (agent(), Register::RefusedByPort);
    let cell = |reply: ControlReply| match reply {
        ControlReply::Register { cells, .. } => cells[3],
        reply => panic!("{reply:?}"),
    };
    let write = |cell| ControlRequest::WriteRegister { term: 2, register, cell, value: 9 };
    assert_eq!(cell(agent.handle(write(3))), 9);
    assert!(matches!(agent.handle(write(256)), ControlReply::Failed { .. }));
    assert_eq!(cell(agent.handle(ControlRequest::ResetRegister { term: 2, register })), 9);
    assert_eq!(cell(agent.handle(ControlRequest::ReadRegister { term: 2, register })), 0);
    let older = ControlRequest::ResetRegister { term: 1, register };
    assert_eq!(agent.handle(older), ControlReply::Refused { current_term: 2 });
}

/// A store of terms in memory that can be made to fail.
#[derive(Default)]
struct Notes {
    term: u64,
    fails: bool,
}

impl TermStore for &mut Notes {
    fn store(&mut self, term: u64) -> Result<(), String> {
        if self.fails {
            return Err("no space left".to_string());
        }
        self.term = term;
        Ok(())
    }
}

#[test]
fn term_is_stored_before_it_is_obeyed() {
    let mut notes = Notes::default();
    let router = || Router::new(VringConfig::DEFAULT).unwrap();
    let install = |term| ControlRequest::Install { term, tables: tables(1, 1) };
    let mut agent = SwitchAgent::with_term_store(router(), 0, &mut notes);
    assert!(matches!(agent.handle(ControlRequest::Status { term: 7 }), ControlReply::Status { .. }));
    notes.fails = true;
    let mut agent = SwitchAgent::with_term_store(router(), notes.term, &mut notes);
    assert_eq!(agent.handle(install(6)), ControlReply::Refused { current_term: 7 });
    let reply = agent.handle(install(8));
    assert!(matches!(&reply, ControlReply::Failed { generation: 1, reason } if reason == "no space left"));
    assert!(matches!(agent.backend_mut().route([10, 0, 0, 9], [10, 10, 0, 1], None), Route::Miss));
    assert_eq!(agent.handle(install(7)), ControlReply::Installed { term: 7, generation: 1 });
    assert_eq!(notes.term, 7);
}

#[test]
fn lookup_finds_the_matching_entries_without_counting() {
    let mut agent = agent();
    let lookup = Lookup {
        unicast: [10, 10, 0x40, 1],
        multicast: [10, 11, 0x40, 1],
        value: 0,
        keyspace: 3,
        watch: None,
    };
    let look = |agent: &mut SwitchAgent<Router>| match agent
        .handle(ControlRequest::Lookup { term: 5, lookup })
    {
        ControlReply::Found { term: 5, generation, lookup: of, found } if of == lookup => (generation, found),
        reply => panic!("{reply:?}"),
    };
    assert_eq!(look(&mut agent), (None, Found::default()), "no tables yet");
    let mut installed = tables(7, 1);
    let narrow = |address| Prefix::new(address, 18);
    installed.hosts.extend([2, 3, 4].map(Host::node));
    let specific =
        UnicastEntry { destination: narrow([10, 10, 0x40, 0]), partition: 9, host: HostId(2), chain: None };
    installed.unicast.push(specific);
    let division =
        |partition| DivisionEntry { partition, source: Prefix::new([10, 20, 0, 0], 16), host: HostId(3) };
    installed.division = vec![division(0), division(9)];
    let group = |address, host| MulticastEntry {
        destination: narrow(address),
        members: MemberSet::new([HostId(host)]),
        chain: None,
        places: None,
    };
    installed.multicast = vec![group([10, 11, 0, 0], 4), group([10, 11, 0x40, 0], 2)];
    agent.handle(ControlRequest::Install { term: 5, tables: installed.clone() });
    for _ in 0..3 {
        let routed = agent.backend_mut().route([10, 0, 0, 9], lookup.unicast, None);
        assert!(matches!(routed, Route::Unicast(Some(Hop::Host(HostId(2))))), "{routed:?}");
    }
    for _ in 0..2 {
        let (generation, found) = look(&mut agent);
        assert_eq!(generation, Some(7));
        assert_eq!(
            found.unicast,
            Some(Met { entry: specific, hits: Some(3), native: None }),
            "the longest prefix"
        );
        assert_eq!(
            found.divisions,
            [Met { entry: division(9), hits: Some(0), native: None }],
            "the divisions of its partition"
        );
        let members = Met { entry: installed.multicast[1].clone(), hits: Some(0), native: None };
        assert_eq!(found.multicast, Some(members));
        assert_eq!(found.hosts.iter().map(|host| host.id.0).collect::<Vec<_>>(), [2, 3]);
    }
    assert_eq!(
        agent.handle(ControlRequest::Lookup { term: 4, lookup }),
        ControlReply::Refused { current_term: 5 }
    );
}

fn hot_entry(instance: u64, digest: u8, holders: &[u16]) -> HotEntry {
    let holders = holders.iter().copied().map(HostId).collect();
    HotEntry { keyspace: 3, digest: [digest; 16], instance, owner_turns: 1, holders, in_switch: false }
}

#[test]
fn only_the_newest_controller_changes_hot_entries() {
    let mut agent = agent();
    let change = |term, removed: &[u64], set: &[HotEntry]| ControlRequest::ChangeHot {
        term,
        clear: false,
        removed: removed.to_vec(),
        set: set.to_vec(),
    };
    let failed = |reply: ControlReply| match reply {
        ControlReply::HotFailed { term: 5, reason } => reason,
        reply => panic!("{reply:?}"),
    };
    let no_node = agent.handle(change(5, &[], &[hot_entry(9, 1, &[1])]));
    assert!(failed(no_node).contains("not a node attached to this switch"), "no tables are installed");
    agent.handle(ControlRequest::Install { term: 5, tables: tables(1, 1) });
    let set = [hot_entry(9, 1, &[1]), hot_entry(10, 2, &[])];
    for _ in 0..2 {
        assert_eq!(agent.handle(change(5, &[], &set)), ControlReply::HotChanged { term: 5, newest: 10 });
    }
    assert_eq!(agent.handle(change(4, &[9], &[])), ControlReply::Refused { current_term: 5 });
    assert!(failed(agent.handle(change(5, &[9], &[hot_entry(8, 4, &[])]))).contains("instance 0x8"));
    let value = |digest: u8| u128::from_be_bytes([digest; 16]);
    let found = |agent: &mut SwitchAgent<Router>, digest| {
        let lookup =
            Lookup { unicast: [0; 4], multicast: [0; 4], value: value(digest), keyspace: 3, watch: None };
        match agent.handle(ControlRequest::Lookup { term: 5, lookup }) {
            ControlReply::Found { found, .. } => found.hot.map(|entry| entry.instance),
            reply => panic!("{reply:?}"),
        }
    };
    assert_eq!([1, 2, 4].map(|digest| found(&mut agent, digest)), [Some(9), Some(10), None]);
    // Removing an entry does not lower the newest instance, because instances are never used again.
    assert_eq!(agent.handle(change(5, &[10], &[])), ControlReply::HotChanged { term: 5, newest: 10 });
    assert_eq!([1, 2].map(|digest| found(&mut agent, digest)), [Some(9), None]);
    let clear = ControlRequest::ChangeHot {
        term: 5,
        clear: true,
        removed: vec![],
        set: vec![hot_entry(11, 1, &[1])],
    };
    assert_eq!(agent.handle(clear), ControlReply::HotChanged { term: 5, newest: 11 });
    assert_eq!(found(&mut agent, 1), Some(11));
}

#[test]
fn only_the_newest_controller_reads_hot_keys() {
    let mut agent = agent();
    agent.handle(ControlRequest::Install { term: 5, tables: tables(1, 1) });
    let set = |keys_max| ControlRequest::SetHot {
        term: 5,
        config: HotConfig { keyspaces: vec![3], keys_max, ..HotConfig::default() },
    };
    let reply = agent.handle(set(0));
    assert!(
        matches!(&reply, ControlReply::HotFailed { reason, .. } if reason.starts_with("keys_max is 0")),
        "{reply:?}"
    );
    assert_eq!(agent.handle(set(100)), ControlReply::HotChanged { term: 5, newest: 0 });
    let reply = agent.handle(ControlRequest::ReadHot { term: 5 });
    let ControlReply::Hot { term: 5, reading } = reply else { panic!("{reply:?}") };
    assert_eq!(reading.loads, [(HostId(1), 0)]);
    assert_eq!(agent.handle(ControlRequest::ReadHot { term: 4 }), ControlReply::Refused { current_term: 5 });
}

//! The reference pipeline against the fixtures, and properties of every frame.

use std::collections::BTreeSet;

use nicekv_proto::Opcode;
use nicekv_switch::{Output, Pipeline};
use proptest::prelude::*;

use super::*;

/// Runs fixtures through the reference pipeline and returns the failures.
fn failures_of(fixtures: &[Fixture], tables: &TableSet) -> Vec<String> {
    let run = |fixture: &Fixture| {
        let mut pipeline = Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap();
        if fixture.installed {
            pipeline.install(tables).unwrap();
        }
        for &(port, station) in &fixture.learned {
            pipeline.process(port, &teaching_frame(station));
        }
        let before = Counts::read(&pipeline).unwrap();
        let output = pipeline.process(fixture.ingress, &fixture.frame);
        fixture.check_output(&output)?;
        fixture.check_counts(&before, &Counts::read(&pipeline).unwrap(), &[])
    };
    fixtures.iter().filter_map(|fixture| run(fixture).err()).collect()
}

#[test]
fn row_31_model_passes_every_fixture() {
    let failures =
        [failures_of(&cases::all(), &tables()), failures_of(&trunks::all(), &trunks::tables())].concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn fixture_names_are_distinct() {
    let all = [cases::all(), trunks::all()].concat();
    let names: BTreeSet<_> = all.iter().map(|fixture| &fixture.name).collect();
    assert_eq!(names.len(), all.len());
}

/// Ports 3 and 4 are trunks, as in the fixtures.
fn switch_with_trunks() -> Pipeline {
    Pipeline::new(vrings(), ROUTER_MAC, 0..6).unwrap().with_trunks([3, 4])
}

fn ports(output: &Output) -> Vec<u16> {
    output.frames.iter().map(|(port, _)| *port).collect()
}

#[test]
fn trunk_port_carries_frames_only_while_tables_open_it() {
    let (one, other) = ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);
    let asks = frames::ethernet([255; 6], one, frames::TYPE_EXPERIMENT);
    let answers = frames::ethernet(one, other, frames::TYPE_EXPERIMENT);
    let mut switch = switch_with_trunks();
    assert_eq!(
        ports(&switch.process(0, &asks)),
        [1, 2, 5],
        "an empty switch floods no trunk, as trunks may form a loop"
    );
    assert_eq!(switch.process(4, &asks).verdict, Verdict::Dropped);
    switch.install(&trunks::tables()).unwrap();
    assert_eq!(ports(&switch.process(4, &asks)), [0, 1, 2, 3, 5]);
    assert_eq!(ports(&switch.process(0, &answers)), [4], "learned there");
    let mut fewer = trunks::tables();
    fewer.generation += 1;
    fewer.trunks = Vec::from([3]);
    switch.install(&fewer).unwrap();
    assert_eq!(switch.process(4, &asks).verdict, Verdict::Dropped);
    assert_eq!(
        ports(&switch.process(0, &answers)),
        [1, 2, 3, 5],
        "what was learned at a closed trunk is forgotten"
    );
    switch.process(4, &teaching_frame(one));
    assert_eq!(ports(&switch.process(0, &answers)), [1, 2, 3, 5], "and not learned again");
}

proptest! {
    #[test]
    fn no_frame_makes_the_parser_panic(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
        Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap().process(0, &frame);
    }

    #[test]
    fn incremental_checksums_equal_full_computation(
        vnode: u16, host_ip: [u8; 4], body in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        prop_assume!(!vrings().contains(host_ip) && host_ip[..2] != [10, 0]);
        let mut tables = tables();
        tables.hosts[0].ip = host_ip;
        tables.unicast.truncate(1);
        tables.division.clear();
        let mut pipeline = Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap();
        pipeline.install(&tables).unwrap();
        let [high, low] = (vnode >> 1).to_be_bytes();
        let payload = frames::message(Opcode::Get, &body);
        let request = frames::Udp { destination: [10, 10, high, low], payload, ..frames::Udp::default() };
        let sent = pipeline.process(0, &request.build()).frames;
        prop_assert_eq!(sent.len(), 1);
        let mut computed = sent[0].1.clone();
        frames::fill_checksums(&mut computed);
        prop_assert_eq!(&sent[0].1, &computed);
    }
}

//! The model and the kernel process random frames alike.

use nicekv_switch::{Backend as _, Counter, Pipeline, TableSet};
use nicekv_switch_fixtures::{Counts, PORTS, ROUTER_MAC, cases, frames, tables, trunks, verdict_of, vrings};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{
    FRAME_BYTES_MIN, Lab, XDP_PASS, at_both, compare_test_run, is_passed_up, is_refused_by_test_run,
};
use crate::{Hook, OBJECT};

/// Random bytes, datagrams to addresses in and around the vrings, or fixtures with bytes
/// overwritten or cut off.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let vnode = (9u8..13, any::<[u8; 2]>());
    // Addresses around existing groups, of a single switch or of a switch among others.
    let group = (63u8..66, 0u8..50, any::<u8>()).prop_map(|(ring, c, d)| (ring, [c, d]));
    let datagram = (any::<[u8; 4]>(), prop_oneof![vnode, group], prop::collection::vec(any::<u8>(), 0..64))
        .prop_map(|(source, (ring, [c, d]), payload)| {
            let message = frames::Udp::request([10, ring, c, d]);
            frames::Udp { source, payload: [&message.payload[..], &payload].concat(), ..message }.build()
        });
    let overwrite = prop::collection::vec((0usize..80, any::<u8>()), 0..4);
    let fixtures = [cases::all(), trunks::all()].concat();
    let fixture = prop::sample::select(fixtures).prop_map(|fixture| fixture.frame);
    let damaged =
        (prop_oneof![fixture, datagram.clone()], overwrite, any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(mut frame, overwrite, length, cut)| {
                for (at, byte) in overwrite {
                    if let Some(place) = frame.get_mut(at) {
                        *place = byte;
                    }
                }
                if cut && !frame.is_empty() {
                    frame.truncate(length.index(frame.len()));
                }
                frame
            });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), datagram, damaged]
        .prop_filter("too short for the kernel", |frame| frame.len() >= FRAME_BYTES_MIN)
}

#[test]
fn model_and_kernel_agree() {
    at_both("model_and_kernel_agree", |hook| {
        [tables(), trunks::tables()]
            .iter()
            .for_each(|tables| the_model_and_the_kernel_agree_at(hook, tables));
    });
}

fn the_model_and_the_kernel_agree_at(hook: Hook, tables: &TableSet) {
    let mut lab = Lab::new(OBJECT, hook);
    lab.xdp.install(tables).unwrap();
    let lab = std::cell::RefCell::new(lab);
    let config = Config { cases: 3000, failure_persistence: None, ..Config::default() };
    let property = |(ingress, frame): (u16, Vec<u8>)| {
        let lab = &mut *lab.borrow_mut();
        lab.forget_stations();
        let mut model = Pipeline::new(vrings(), ROUTER_MAC, PORTS).unwrap();
        model.install(tables).unwrap();
        if is_refused_by_test_run(hook, &frame) {
            return Ok(());
        }
        let model_before = Counts::read(&model).unwrap();
        let expected = model.process(ingress, &frame);
        let before = lab.xdp.counters().unwrap();
        let (code, out) = lab.test_run(ingress, &frame);
        let counted = lab.xdp.counters().unwrap().since(&before);
        let modelled = Counts::read(&model).unwrap().since(&model_before);
        if hook == Hook::Xdp && code == XDP_PASS {
            prop_assert!(is_passed_up(&frame, &counted, &out));
            return Ok(());
        }
        // A test run does not show all pieces of a scan that is split.
        if modelled.get(Counter::ScanSplits) == 0 {
            let verdict = verdict_of(&counted, &frame);
            let compared = compare_test_run(hook, &expected, &frame, verdict, code, &out);
            compared.map_err(TestCaseError::fail)?;
        }
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::MulticastCopies) {
            prop_assert_eq!(counted.get(counter), modelled.get(counter), "{}", counter.name());
        }
        Ok(())
    };
    TestRunner::new(config).run(&(PORTS, frame()), property).unwrap();
}

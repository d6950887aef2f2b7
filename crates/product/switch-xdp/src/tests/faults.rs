//! Injected faults affect the frames of one port, in one direction, and no others.

use std::collections::BTreeMap;
use std::time::Instant;

use aya::maps::Map;
use nicekv_switch::{Backend as _, Output, Verdict};
use nicekv_switch_fixtures::{frames, tables};

use super::at_both;
use super::namespaces::RECEIVE_TIMEOUT;
use super::{Lab, OBJECT};
use crate::Hook;
use crate::faults::{ACTIVE, FAULTS, FaultControl, FaultCounts, PortFaults};

const CERTAIN: f64 = 1.0;

struct Faulty {
    lab: Lab,
    control: FaultControl,
}

impl Faulty {
    fn new(hook: Hook) -> Self {
        let mut lab = Lab::new(OBJECT, hook);
        lab.xdp.install(&tables()).unwrap();
        let id = |name| match lab.xdp.programs.map(name) {
            Some(Map::Array(map) | Map::HashMap(map)) => map.info().unwrap().id(),
            map => panic!("{map:?}"),
        };
        let control = FaultControl::open(id(ACTIVE), id(FAULTS)).unwrap();
        Self { lab, control }
    }

    fn ifindex(&self, port: u16) -> u32 {
        self.lab.network.ports[usize::from(port)].ifindex
    }

    fn set(&mut self, port: u16, faults: PortFaults) {
        let faults = BTreeMap::from([(self.ifindex(port), faults)]);
        assert!(self.control.set(&faults).unwrap());
    }

    fn counts(&self, port: u16) -> FaultCounts {
        self.control.counts().unwrap()[&self.ifindex(port)]
    }

    /// The ports at which frames from port 0 have come out, once for each frame.
    fn reached(&mut self) -> Vec<u16> {
        let frames = self.lab.collect(0, |port| port != 0);
        frames.into_iter().map(|(port, _)| port).collect()
    }

    fn send(&self, frame: &[u8]) {
        self.lab.network.stations[0].send(frame);
    }

    /// Waits until this many frames were lost at a port.
    fn wait_for_lost(&self, port: u16, lost: u64) {
        let deadline = Instant::now() + RECEIVE_TIMEOUT;
        while self.counts(port).lost != lost {
            assert!(Instant::now() < deadline, "{:?} at port {port}", self.counts(port));
            std::thread::yield_now();
        }
    }
}

fn datagram(ring: u8) -> Vec<u8> {
    frames::Udp::request([10, ring, 0, 1]).build()
}

#[test]
fn loss_fault_affects_one_direction_of_one_port() {
    at_both("loss_fault_affects_one_direction_of_one_port", |hook| {
        let mut switch = Faulty::new(hook);
        let (unicast, multicast) = (datagram(10), datagram(11));
        switch.send(&multicast);
        let members = switch.reached();
        assert!(members.len() > 1, "{members:?}");
        let cut = members[0];
        // Frames to one member are lost: only its copy is missing.
        switch.set(cut, PortFaults { lost_to: CERTAIN, ..PortFaults::default() });
        switch.send(&multicast);
        switch.wait_for_lost(cut, 1);
        assert!(switch.control.set(&BTreeMap::new()).unwrap());
        assert_eq!(switch.reached(), members[1..]);
        // Losing frames from the member does not affect frames that port 0 sends.
        switch.set(cut, PortFaults { lost_from: CERTAIN, ..PortFaults::default() });
        switch.send(&multicast);
        assert_eq!(switch.reached(), members);
        switch.send(&unicast);
        let [host] = switch.reached()[..] else { panic!("one replica answers a get") };
        switch.set(host, PortFaults { lost_to: CERTAIN, ..PortFaults::default() });
        let before = switch.counts(host).lost;
        switch.send(&unicast);
        switch.wait_for_lost(host, before + 1);
        switch.set(0, PortFaults { lost_from: CERTAIN, ..PortFaults::default() });
        switch.send(&unicast);
        switch.wait_for_lost(0, 1);
        assert!(switch.control.set(&BTreeMap::new()).unwrap());
        switch.send(&unicast);
        assert_eq!(switch.reached(), [host], "no frame is lost after the faults are removed");
        assert!(!switch.control.set(&BTreeMap::from([(u32::MAX, PortFaults::default())])).unwrap());
    });
}

#[test]
fn duplicated_frames_arrive_twice_and_intact() {
    at_both("duplicated_frames_arrive_twice_and_intact", |hook| {
        let mut switch = Faulty::new(hook);
        let station = [2, 0, 0, 0, 9, 9];
        switch.lab.teach(4, station);
        let learned = [&station[..], &[2, 0, 0, 0, 0, 0x77], &[0x88, 0xb5], &[7; 46]].concat();
        for frame in [datagram(10), datagram(11), learned] {
            switch.set(0, PortFaults::default());
            let Output { verdict, frames: once } = switch.lab.send(0, &frame);
            assert_ne!(verdict, Verdict::Dropped);
            let mut twice: Vec<_> = once.iter().chain(&once).cloned().collect();
            twice.sort_unstable();
            switch.set(0, PortFaults { doubled: CERTAIN, ..PortFaults::default() });
            assert_eq!(switch.lab.send(0, &frame).frames, twice);
        }
        assert_eq!(switch.counts(0).lost, 0);
        assert!(switch.counts(0).doubled >= 3);
    });
}

#[test]
fn loss_rate_is_about_the_configured_one() {
    at_both("loss_rate_is_about_the_configured_one", |hook| {
        const FRAMES: u64 = 4_000;
        let mut switch = Faulty::new(hook);
        switch.set(0, PortFaults { lost_from: 0.1, ..PortFaults::default() });
        let frame = datagram(10);
        for _ in 0..FRAMES {
            switch.lab.test_run(0, &frame);
        }
        // The bounds are six standard deviations around a tenth: the test fails by chance once in
        // half a billion runs.
        let lost = switch.counts(0).lost;
        assert!((286..=514).contains(&lost), "{lost} of {FRAMES}");
    });
}

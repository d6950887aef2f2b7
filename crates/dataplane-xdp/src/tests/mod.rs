//! The fixtures in the kernel: by `BPF_PROG_TEST_RUN` (parsing, verdict, rewrite) and with live frames through
//! veth ports (redirect, copies, egress rewrite). They need root and say so if they are not run.

mod build;
mod faults;
mod generations;
mod hosts;
mod namespaces;
mod random;

use aya::maps::{HashMap, MapData};
use aya::programs::{TestRun as _, TestRunOptions};
use nicekv_dataplane::fixtures::{
    Counts, Fixture, PORTS, ROUTER_MAC, VRINGS, cases, tables, teaching_frame, verdict_of,
};
use nicekv_dataplane::{Backend as _, Counter, Counters, Output, Verdict};

use crate::layout::{Mac, Metadata};
use crate::{INGRESS, OBJECT, Xdp};
use namespaces::{Network, as_root};

const XDP_DROP: u32 = 1;
const XDP_REDIRECT: u32 = 4;
/// Frames shorter than an Ethernet header cannot be sent, and `BPF_PROG_TEST_RUN` refuses them.
const FRAME_BYTES_MIN: usize = 14;
/// Type of the frames that mark the end of what a fixture sends.
const TYPE_SENTINEL: [u8; 2] = [0x88, 0xb6];

/// A switch in namespaces.
struct Lab {
    network: Network,
    xdp: Xdp,
    sentinels: u32,
}

impl Lab {
    fn new(object: &[u8]) -> Self {
        let network = Network::enter(PORTS.end);
        let xdp = Xdp::load_object(object, VRINGS.try_into().unwrap(), ROUTER_MAC, &network.ports).unwrap();
        Self { network, xdp, sentinels: 0 }
    }

    fn forget_stations(&mut self) {
        let map = self.xdp.programs.map_mut("macs").unwrap();
        let mut macs: HashMap<&mut MapData, Mac, u32> = map.try_into().unwrap();
        let known: Vec<Mac> = macs.keys().collect::<Result<_, _>>().unwrap();
        known.iter().for_each(|mac| macs.remove(mac).unwrap());
    }

    /// Runs the ingress program on a frame, without sending anything.
    fn test_run(&self, ingress: u16, frame: &[u8]) -> (u32, Vec<u8>) {
        let program: &aya::programs::Xdp = self.xdp.programs.program(INGRESS).unwrap().try_into().unwrap();
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, …
        let mut context = [0u8; 24];
        context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        context[12..16].copy_from_slice(&self.network.ports[usize::from(ingress)].ifindex.to_ne_bytes());
        let mut out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        };
        let result = program.test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        (result.return_value, out)
    }

    /// Sends a frame into a port and collects what comes out at every port.
    fn send(&mut self, ingress: u16, frame: &[u8]) -> Output {
        let before = self.xdp.counters().unwrap();
        self.network.stations[usize::from(ingress)].send(frame);
        // Behind the frame on the same way: when it is there, everything of the frame is.
        let mut frames = self.collect(ingress, |port| port != ingress);
        let other = (ingress + 1) % PORTS.end;
        frames.extend(self.collect(other, |port| port == ingress));
        frames.sort_unstable();
        Output { verdict: verdict_of(&self.without_sentinels(&before)), frames }
    }

    fn without_sentinels(&self, before: &Counters) -> Counters {
        let mut counted = self.xdp.counters().unwrap().since(before);
        counted.add(Counter::Flooded, 0u64.wrapping_sub(2));
        counted
    }

    /// Floods a sentinel from one port; what the chosen ports receive before it.
    fn collect(&mut self, from: u16, at: impl Fn(u16) -> bool) -> Vec<(u16, Vec<u8>)> {
        self.sentinels += 1;
        // The source is a group address, which is never learned.
        let mut sentinel = [&[0xff; 6][..], &[0x03, 0, 0, 0, 0, 0], &TYPE_SENTINEL].concat();
        sentinel.extend(self.sentinels.to_be_bytes());
        self.network.stations[usize::from(from)].send(&sentinel);
        let mut frames = Vec::new();
        for (port, station) in (0..).zip(&self.network.stations).filter(|(port, _)| at(*port)) {
            let before_sentinel =
                std::iter::repeat_with(|| station.receive()).take_while(|frame| *frame != sentinel);
            let is_old_sentinel = |frame: &Vec<u8>| frame[12..14] == TYPE_SENTINEL;
            frames.extend(before_sentinel.filter(|frame| !is_old_sentinel(frame)).map(|frame| (port, frame)));
        }
        frames
    }
}

/// Runs every fixture that the kernel takes; those for the empty switch come first. The failures.
fn run_fixtures(
    lab: &mut Lab,
    check: impl Fn(&mut Lab, &Fixture, &Counts) -> Result<(), String>,
) -> Vec<String> {
    let mut installed = false;
    let mut failures = Vec::new();
    for fixture in cases::all().iter().filter(|fixture| fixture.frame.len() >= FRAME_BYTES_MIN) {
        if fixture.installed && !installed {
            lab.xdp.install(&tables()).unwrap();
            installed = true;
        }
        assert_eq!(fixture.installed, installed, "fixtures of the empty switch come first");
        lab.forget_stations();
        for &(port, station) in &fixture.learned {
            lab.test_run(port, &teaching_frame(station));
        }
        let before = Counts::read(&lab.xdp).unwrap();
        failures.extend(check(lab, fixture, &before).err());
    }
    failures
}

fn check_by_test_run(lab: &mut Lab, fixture: &Fixture, before: &Counts) -> Result<(), String> {
    let (code, out) = lab.test_run(fixture.ingress, &fixture.frame);
    let after = Counts::read(&lab.xdp).unwrap();
    compare_test_run(&fixture.expected, &fixture.frame, verdict_of(&after.since(before)), code, &out)
        .map_err(|difference| format!("{}: {difference}", fixture.name))?;
    // There are no copies without a real port.
    fixture.check_counts(before, &after, &[Counter::MulticastCopies])
}

fn compare_test_run(
    expected: &Output,
    sent: &[u8],
    verdict: Verdict,
    code: u32,
    out: &[u8],
) -> Result<(), String> {
    if verdict != expected.verdict {
        return Err(format!("verdict {verdict:?}, expected {:?}", expected.verdict));
    }
    let (expected_code, expected_frame) = match verdict {
        Verdict::Dropped => (XDP_DROP, sent),
        Verdict::Routed => (XDP_REDIRECT, &expected.frames[0].1[..]),
        Verdict::Multicast | Verdict::Forwarded | Verdict::Flooded => (XDP_REDIRECT, sent),
    };
    if code != expected_code {
        return Err(format!("the program returned {code}, expected {expected_code}"));
    }
    let metadata_bytes = if verdict == Verdict::Multicast { size_of::<Metadata>() } else { 0 };
    if &out[metadata_bytes..] != expected_frame {
        let hex = |frame: &[u8]| frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect::<String>();
        return Err(format!("frame {}, expected {}", hex(out), hex(expected_frame)));
    }
    Ok(())
}

fn check_live(lab: &mut Lab, fixture: &Fixture, before: &Counts) -> Result<(), String> {
    let output = lab.send(fixture.ingress, &fixture.frame);
    fixture.check_output(&output)?;
    let after = Counts::read(&lab.xdp).unwrap();
    let sentinels = 2;
    let flooded = after.since(before).get(Counter::Flooded);
    let expected =
        fixture.counters.iter().find(|(counter, _)| *counter == Counter::Flooded).map_or(0, |(_, n)| *n);
    if flooded != expected + sentinels {
        return Err(format!(
            "{}: flooded {flooded}, expected {expected} and {sentinels} sentinels",
            fixture.name
        ));
    }
    fixture.check_counts(before, &after, &[Counter::Flooded])
}

/// The fixtures that a switch built from `object` fails with live frames.
fn live_failures(object: &[u8]) -> Vec<String> {
    run_fixtures(&mut Lab::new(object), check_live)
}

#[track_caller]
fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn row_31_fixtures_by_test_run() {
    as_root("row_31_fixtures_by_test_run", || {
        assert_none(&run_fixtures(&mut Lab::new(OBJECT), check_by_test_run));
    });
}

#[test]
fn row_31_fixtures_with_live_frames() {
    as_root("row_31_fixtures_with_live_frames", || {
        let mut lab = Lab::new(OBJECT);
        let attached = lab.network.bpftool_net();
        assert_eq!(
            attached.matches("driver").count(),
            usize::from(PORTS.end),
            "not in native mode:\n{attached}"
        );
        assert_none(&run_fixtures(&mut lab, check_live));
    });
}

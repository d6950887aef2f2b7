//! The fixtures run in the kernel: by `BPF_PROG_TEST_RUN` (parsing, verdict, rewrite) and with live
//! frames through veth ports (redirect, copies, egress rewrite). These tests need root; without it
//! they report that they were not run.

mod build;
mod edges;
mod faults;
mod generations;
mod gets;
mod groups;
mod gso;
mod hosts;
mod hot;
mod hot_costs;
mod loading;
mod namespaces;
mod random;

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use nicekv_switch::{Backend as _, Counter, Counters, Output, TableSet, Verdict};
use nicekv_switch_fixtures::{
    Counts, Fixture, PORTS, ROUTER_MAC, cases, tables, teaching_frame, trunks, verdict_of, vrings,
};

use crate::attach::{TC, XDP};
use crate::layout::{Mac, Metadata};
use crate::{Hook, KernelSwitch, OBJECT};
use namespaces::{Network, as_root};

/// The hooks at which a switch can process frames.
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TC_DROP: u32 = 2;
const TC_REDIRECT: u32 = 7;
/// Frames shorter than an Ethernet header cannot be sent, and `BPF_PROG_TEST_RUN` refuses them.
const FRAME_BYTES_MIN: usize = 14;
/// EtherType of the sentinel, the frame that marks the end of a fixture's frames.
const TYPE_SENTINEL: [u8; 2] = [0x88, 0xb6];

/// A kernel switch in a network of namespaces.
struct Lab {
    network: Network,
    xdp: KernelSwitch,
    hook: Hook,
    sentinels: u32,
}

impl Lab {
    fn new(object: &[u8], hook: Hook) -> Self {
        Self::of_hooks(object, hook, |_| hook)
    }

    /// A switch with ports alternately at XDP and at tc.
    fn mixed() -> Self {
        Self::of_hooks(OBJECT, Hook::Xdp, |port| HOOKS[usize::from(port % 2)])
    }

    /// A switch with a segmenter for GSO batches.
    fn with_cutter(hook: Hook) -> Self {
        let network = Network::enter(PORTS.end, |_| hook);
        network.add_cutter();
        Self::of_network(network, OBJECT, hook)
    }

    fn of_hooks(object: &[u8], hook: Hook, hook_of: impl Fn(u16) -> Hook) -> Self {
        Self::of_network(Network::enter(PORTS.end, hook_of), object, hook)
    }

    fn of_network(network: Network, object: &[u8], hook: Hook) -> Self {
        Self { xdp: load(object, &network), network, hook, sentinels: 0 }
    }

    fn forget_stations(&mut self) {
        let macs = &mut self.xdp.maps.macs;
        let known: Vec<Mac> = macs.keys().collect::<Result<_, _>>().unwrap();
        known.iter().for_each(|mac| macs.remove(mac).unwrap());
    }

    /// Makes the switch learn the port of a station.
    fn teach(&mut self, port: u16, station: [u8; 6]) {
        self.test_run(port, &teaching_frame(station));
        if self.hook == Hook::Tc {
            // At tc the test run sends clones of the frame; they are received and discarded.
            self.collect(port, |other| other != port);
            self.collect((port + 1) % PORTS.end, |other| other == port);
        }
    }

    /// Runs the program on a frame. At XDP no frame is sent.
    fn test_run(&self, ingress: u16, frame: &[u8]) -> (u32, Vec<u8>) {
        self.test_run_gso(ingress, frame, 0)
    }

    /// Runs the program on a GSO batch. `gso_size`: the bytes of each of its datagrams. Only tc
    /// receives batches.
    fn test_run_gso(&self, ingress: u16, frame: &[u8], gso_size: u32) -> (u32, Vec<u8>) {
        let ifindex = self.network.ports[usize::from(ingress)].ifindex.to_ne_bytes();
        let mut out = vec![0; frame.len() + 64];
        let context = match self.hook {
            Hook::Tc => {
                // `struct __sk_buff`: its 11th word is ifindex, its 45th is gso_size.
                let mut context = [0u8; 192];
                context[40..44].copy_from_slice(&ifindex);
                context[176..180].copy_from_slice(&gso_size.to_ne_bytes());
                context.to_vec()
            }
            _ => {
                // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, …
                let mut context = [0u8; 24];
                context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
                context[12..16].copy_from_slice(&ifindex);
                context.to_vec()
            }
        };
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        };
        let program = |name| self.xdp.programs.program(name).unwrap();
        let result = match self.hook {
            Hook::Tc => <&SchedClassifier>::try_from(program(TC)).unwrap().test_run(options).unwrap(),
            _ => <&Xdp>::try_from(program(XDP)).unwrap().test_run(options).unwrap(),
        };
        out.truncate(result.data_size_out as usize);
        (result.return_value, out)
    }

    /// Sends a frame into a port, and collects the frames that come out at all ports.
    fn send(&mut self, ingress: u16, frame: &[u8]) -> Output {
        let before = self.xdp.counters().unwrap();
        self.network.stations[usize::from(ingress)].send(frame);
        // A sentinel follows the frame on the same path: once it has arrived, so have all copies of
        // the frame.
        let mut frames = self.collect(ingress, |port| port != ingress);
        let other = (ingress + 1) % PORTS.end;
        frames.extend(self.collect(other, |port| port == ingress));
        frames.sort_unstable();
        Output { verdict: verdict_of(&self.without_sentinels(&before), frame), frames }
    }

    fn without_sentinels(&self, before: &Counters) -> Counters {
        let mut counted = self.xdp.counters().unwrap().since(before);
        counted.add(Counter::Flooded, 0u64.wrapping_sub(2));
        counted
    }

    /// Runs fixtures; see [`run_fixtures`].
    fn run(
        &mut self,
        fixtures: &[Fixture],
        tables: &TableSet,
        check: impl Fn(&mut Self, &Fixture, &Counts) -> Result<(), String>,
    ) -> Vec<String> {
        let mut installed = false;
        let mut failures = Vec::new();
        for fixture in fixtures.iter().filter(|fixture| fixture.frame.len() >= FRAME_BYTES_MIN) {
            if fixture.installed && !installed {
                self.xdp.install(tables).unwrap();
                installed = true;
            }
            assert_eq!(fixture.installed, installed, "fixtures of the empty switch come first");
            self.forget_stations();
            for &(port, station) in &fixture.learned {
                self.teach(port, station);
            }
            let before = Counts::read(&self.xdp).unwrap();
            failures.extend(check(self, fixture, &before).err());
        }
        failures
    }

    /// Floods a sentinel from one port. Returns the frames that the chosen ports have received
    /// before it.
    fn collect(&mut self, from: u16, at: impl Fn(u16) -> bool) -> Vec<(u16, Vec<u8>)> {
        self.sentinels += 1;
        // The source is a group address, which the switch does not learn.
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

/// Loads a switch. The caller must be in the switch's namespace.
fn load(object: &[u8], network: &Network) -> KernelSwitch {
    KernelSwitch::load_object(object, vrings(), ROUTER_MAC, &network.ports).unwrap()
}

/// Runs every fixture that the kernel accepts: first with the tables of a single switch, then with
/// those of a switch among others. Returns the failures.
fn run_fixtures(
    lab: &mut Lab,
    check: impl Fn(&mut Lab, &Fixture, &Counts) -> Result<(), String>,
) -> Vec<String> {
    let alone = lab.run(&cases::all(), &tables(), &check);
    [alone, lab.run(&trunks::all(), &trunks::tables(), check)].concat()
}

/// At tc, the kernel refuses test runs with frames whose payload is empty or shorter than an IP
/// header. Live frames may be that short.
fn is_refused_by_test_run(hook: Hook, frame: &[u8]) -> bool {
    let header_bytes = match frame[12..14] {
        [0x08, 0x00] => 20,
        [0x86, 0xdd] => 40,
        _ => 1,
    };
    hook == Hook::Tc && frame.len() < FRAME_BYTES_MIN + header_bytes
}

fn check_by_test_run(lab: &mut Lab, fixture: &Fixture, before: &Counts) -> Result<(), String> {
    if is_refused_by_test_run(lab.hook, &fixture.frame) {
        return Ok(());
    }
    let (code, out) = lab.test_run(fixture.ingress, &fixture.frame);
    let after = Counts::read(&lab.xdp).unwrap();
    if lab.hook == Hook::Xdp && code == XDP_PASS {
        let is_scan = fixture.name.contains("scan");
        let passed_up = is_scan && is_passed_up(&fixture.frame, &after.since(before), &out);
        return if passed_up { Ok(()) } else { Err(format!("{}: passed up", fixture.name)) };
    }
    let verdict = verdict_of(&after.since(before), &fixture.frame);
    // A scan that is split yields several pieces, of which a test run shows only the last one.
    if fixture.counters.iter().any(|(counter, _)| *counter == Counter::ScanSplits) {
        return fixture.check_counts(before, &after, &[]);
    }
    compare_test_run(lab.hook, &fixture.expected, &fixture.frame, verdict, code, &out)
        .map_err(|difference| format!("{}: {difference}", fixture.name))?;
    // Test runs do not create copies.
    fixture.check_counts(before, &after, &[Counter::MulticastCopies])
}

fn compare_test_run(
    hook: Hook,
    expected: &Output,
    sent: &[u8],
    verdict: Verdict,
    code: u32,
    out: &[u8],
) -> Result<(), String> {
    if verdict != expected.verdict {
        return Err(format!("verdict {verdict:?}, expected {:?}", expected.verdict));
    }
    let (drop, redirect) = if hook == Hook::Tc { (TC_DROP, TC_REDIRECT) } else { (XDP_DROP, XDP_REDIRECT) };
    let (expected_code, expected_frame) = match (verdict, hook) {
        (Verdict::Dropped, _) => (drop, sent),
        (Verdict::Routed, _) => {
            expected.frames.first().map_or((drop, sent), |(_, only)| (redirect, &only[..]))
        }
        // tc sends clones to all receivers but the last (hosts come after trunks), which gets the
        // frame itself.
        (Verdict::Multicast, Hook::Tc) => {
            let hosts = expected.frames.iter().rfind(|(_, frame)| frame != sent);
            let last = hosts.or(expected.frames.last());
            last.map_or((drop, sent), |(_, last)| (redirect, &last[..]))
        }
        (Verdict::Flooded, Hook::Tc) => (drop, sent),
        (Verdict::Multicast | Verdict::Forwarded | Verdict::Flooded, _) => (redirect, sent),
    };
    // If all receivers are at the ingress port, XDP may leave this to the device map, or drop the
    // frame.
    if verdict == Verdict::Multicast && expected.frames.is_empty() && (code, out) == (drop, sent) {
        return Ok(());
    }
    if code != expected_code {
        return Err(format!("the program returned {code}, expected {expected_code}"));
    }
    let has_metadata = verdict == Verdict::Multicast && hook == Hook::Xdp;
    let metadata_bytes = if has_metadata { size_of::<Metadata>() } else { 0 };
    if &out[metadata_bytes..] != expected_frame {
        let hex = |frame: &[u8]| frame.iter().take(80).map(|byte| format!("{byte:02x}")).collect::<String>();
        return Err(format!("frame {}, expected {}", hex(out), hex(expected_frame)));
    }
    Ok(())
}

/// Whether XDP has passed a scan on to tc: unchanged, and without counting it.
fn is_passed_up(sent: &[u8], counted: &Counters, out: &[u8]) -> bool {
    Counter::ALL.into_iter().all(|counter| counted.get(counter) == 0) && out == sent
}

/// Whether a VLAN tag lacks the type behind it. The kernel drops such a frame before tc can count
/// it.
fn is_broken_tag(frame: &[u8]) -> bool {
    frame[12..14] == [0x81, 0x00] && frame.len() < FRAME_BYTES_MIN + 6
}

fn check_live(lab: &mut Lab, fixture: &Fixture, before: &Counts) -> Result<(), String> {
    let output = lab.send(fixture.ingress, &fixture.frame);
    fixture.check_output(&output)?;
    if lab.hook == Hook::Tc && is_broken_tag(&fixture.frame) {
        return Ok(());
    }
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
fn live_failures(object: &[u8], hook: Hook) -> Vec<String> {
    run_fixtures(&mut Lab::new(object, hook), check_live)
}

/// Runs a test at each hook.
fn at_both(name: &str, test: impl Fn(Hook) + Send + Sync) {
    HOOKS.into_iter().for_each(|hook| as_root(name, || test(hook)));
}

#[track_caller]
fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn row_31_fixtures_by_test_run() {
    as_root("row_31_fixtures_by_test_run", || {
        for hook in HOOKS {
            assert_none(&run_fixtures(&mut Lab::new(OBJECT, hook), check_by_test_run));
        }
    });
}

#[test]
fn fixtures_with_live_frames_through_ports_of_both_kinds() {
    as_root("fixtures_with_live_frames_through_ports_of_both_kinds", || {
        assert_none(&run_fixtures(&mut Lab::mixed(), check_live));
    });
}

#[test]
fn row_31_fixtures_with_live_frames() {
    as_root("row_31_fixtures_with_live_frames", || {
        for hook in HOOKS {
            let mut lab = Lab::new(OBJECT, hook);
            assert_eq!(lab.network.attached(hook), PORTS.len());
            assert!(lab.xdp.hooks().eq(PORTS.map(|port| (port, hook))));
            assert_none(&run_fixtures(&mut lab, check_live));
        }
    });
}

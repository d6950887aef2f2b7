//! A real Open vSwitch, controlled by OpenFlow. Its ports are dummies: a test puts frames into them,
//! and reads from files what has left. Needs no root.

use nicekv_openflow::program::Fabric;
use nicekv_runtime::control_plane::CONTROL_LIMITS;
use nicekv_runtime::{
    AgentLink, FramedStream, OpenFlowSwitch, Stop, accept, listen, now, readable, run_openflow, switch_agent,
    wait,
};
use nicekv_switch::control::{ControlReply, ControlRequest, decode, encode};
use nicekv_switch::{Backend, HostId, Table, TableSet};
use nicekv_switch_fixtures::{
    Fixture, PORTS, ROUTER_MAC, cases, frames, headers_only, tables, trunks, vrings,
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Header of a pcap file, and of each frame in it.
const FILE_HEADER: usize = 24;
const FRAME_HEADER: usize = 16;

/// The destination of markers, where nobody is.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0xee, 1];

/// OpenFlow has no port 0.
const fn openflow_port(port: u16) -> u16 {
    port + 1
}

fn with_openflow_ports(mut tables: TableSet) -> TableSet {
    tables.hosts.iter_mut().for_each(|host| host.port = openflow_port(host.port));
    tables.trunks.iter_mut().for_each(|port| *port = openflow_port(*port));
    tables
}

/// A running Open vSwitch with one bridge. Dropping it ends its processes.
struct OpenVSwitch {
    directory: TempDir,
    processes: Vec<Child>,
    /// Bytes of each port's file that were read.
    read: Vec<usize>,
    /// To how many ports a frame from port 0 is flooded.
    open_ports: usize,
}

impl OpenVSwitch {
    fn start(controller: SocketAddrV4) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut switch = Self {
            directory,
            processes: Vec::new(),
            read: vec![FILE_HEADER; PORTS.len()],
            open_ports: PORTS.len() - 1,
        };
        switch.run("ovsdb-tool", &["create", &switch.path("conf.db"), SCHEMA]);
        let remote = format!("--remote=punix:{}", switch.path("db.sock"));
        switch.spawn("ovsdb-server", &[&switch.path("conf.db"), &remote]);
        let database = switch.database();
        switch.run("ovs-vsctl", &["--no-wait", "init"]);
        switch.spawn("ovs-vswitchd", &[&database, "--enable-dummy", "--disable-system"]);
        let bridge = "add-br br0 -- set bridge br0 datapath_type=dummy protocols=OpenFlow13 fail-mode=secure";
        switch.configure(bridge);
        switch.configure(&format!("set-controller br0 tcp:{controller}"));
        switch.configure("set controller br0 connection-mode=out-of-band max_backoff=1000");
        for port in PORTS {
            let (number, file) = (openflow_port(port), switch.path(&format!("p{port}.pcap")));
            switch.configure(&format!(
                "add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={number} \
                 options:tx_pcap={file}"
            ));
        }
        switch
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).into_os_string().into_string().unwrap()
    }

    fn database(&self) -> String {
        format!("unix:{}", self.path("db.sock"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("OVS_RUNDIR", self.directory.path()).env("OVS_LOGDIR", self.directory.path());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = self.command(program);
        if program == "ovs-vsctl" {
            command.arg(format!("--db={}", self.database()));
        }
        let output = command.args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn configure(&self, words: &str) {
        self.run("ovs-vsctl", &words.split_whitespace().collect::<Vec<_>>());
    }

    /// Starts a daemon, and waits until it answers.
    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let socket = self.path(&format!("{program}.ctl"));
        let mut command = self.command(program);
        command.args(arguments).arg(format!("--unixctl={socket}")).args(["--verbose=off"]);
        self.processes
            .push(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let since = Instant::now();
        let answers = || {
            Path::new(&socket).exists()
                && self
                    .command("ovs-appctl")
                    .args(["-t", &socket, "version"])
                    .output()
                    .unwrap()
                    .status
                    .success()
        };
        while !answers() {
            assert!(since.elapsed() < TIMEOUT, "{program} does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn control(&self, words: &[&str]) -> String {
        let socket = self.path("ovs-vswitchd.ctl");
        self.run("ovs-appctl", &[&["-t", &socket], words].concat())
    }

    fn put(&self, port: u16, frame: &[u8]) {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        self.control(&["netdev-dummy/receive", &format!("p{port}"), &hex]);
    }

    /// The frames that have left since the last call.
    fn take(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut left = Vec::new();
        for port in PORTS {
            let bytes = std::fs::read(self.path(&format!("p{port}.pcap"))).unwrap();
            let read = &mut self.read[usize::from(port)];
            while let Some(header) = bytes.get(*read..*read + FRAME_HEADER) {
                let length = u32::from_ne_bytes(header[8..12].try_into().unwrap()) as usize;
                let at = *read + FRAME_HEADER;
                let Some(frame) = bytes.get(at..at + length) else { break };
                left.push((port, frame.to_vec()));
                *read = at + length;
            }
        }
        left
    }

    /// Puts a frame into a port, and returns the frames that leave, ascending by port.
    fn process(&mut self, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let marker = frames::ethernet(NOBODY, [2, 0, 0, 0, 0xee, 2], frames::TYPE_EXPERIMENT);
        self.put(port, frame);
        let mut left = Vec::new();
        // The switch polls its ports in turn, so the first marker may overtake the frame.
        for _ in 0..2 {
            self.put(0, &marker);
            let (since, before) = (Instant::now(), left.len());
            while !left[before..].contains(&(1, marker.clone())) {
                assert!(since.elapsed() < TIMEOUT, "frames do not leave");
                left.extend(self.take());
            }
        }
        // The other copies of the marker follow the first.
        while left.iter().filter(|(_, frame)| *frame == marker).count() % self.open_ports != 0 {
            left.extend(self.take());
        }
        left.retain(|(_, frame)| *frame != marker);
        left.sort_unstable();
        left
    }
}

impl OpenVSwitch {
    /// Repeats a frame until this leaves. Open vSwitch answers a BARRIER when its flows have changed;
    /// packets that are like earlier ones follow cached decisions until these are checked again.
    fn eventually(&mut self, probe: &Fixture, is_right: impl Fn(&[(u16, Vec<u8>)]) -> bool) {
        let since = Instant::now();
        while !is_right(&self.process(probe.ingress, &probe.frame)) {
            assert!(since.elapsed() < TIMEOUT, "the new tables are not in force");
        }
    }
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

fn fabric(trunks: &[u16], learns: bool) -> Fabric {
    Fabric {
        vrings: vrings(),
        router_mac: ROUTER_MAC,
        ports: [].into(),
        trunks: trunks.iter().map(|port| openflow_port(*port)).collect(),
        requests_per_second: Some(1_000_000),
        learns,
    }
}

fn controlled(trunks: &[u16], learns: bool) -> (OpenFlowSwitch, OpenVSwitch) {
    let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("IPv4") };
    let mut controller = OpenFlowSwitch::new(listener, fabric(trunks, learns));
    controller.obey(1);
    let switch = OpenVSwitch::start(address);
    work(&mut controller, |controller| {
        controller.is_ready() && controller.ports().is_some_and(|ports| ports.len() == PORTS.len())
    });
    (controller, switch)
}

/// Lets the controller work until `is_done`.
fn work(controller: &mut OpenFlowSwitch, is_done: impl Fn(&OpenFlowSwitch) -> bool) {
    let since = Instant::now();
    while !is_done(controller) {
        assert!(since.elapsed() < TIMEOUT, "timed out");
        controller.turn(now());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn failure(fixture: &Fixture, switch: &mut OpenVSwitch, tables: &TableSet) -> Option<String> {
    // Open vSwitch pads what is shorter than an Ethernet header, which no real port receives.
    if fixture.frame.len() < 14 || !fixture.learned.is_empty() {
        return None;
    }
    let frames = switch.process(fixture.ingress, &fixture.frame);
    let expected = headers_only::expected(fixture, tables);
    let is_for_vring = headers_only::destination(fixture).is_some_and(|address| vrings().contains(address));
    let is_unchanged = |(_, frame): &(u16, Vec<u8>)| *frame == fixture.frame;
    match headers_only::exception(fixture, tables) {
        None if frames != expected => {
            Some(format!("{}:\n  sent     {frames:02x?}\n  expected {expected:02x?}", fixture.name))
        }
        Some(reason) if is_for_vring && frames.iter().any(is_unchanged) && tables.trunks.is_empty() => {
            Some(format!("{}: {reason}, but it is forwarded", fixture.name))
        }
        _ => None,
    }
}

fn has_open_vswitch(test: &str) -> bool {
    nicekv_testkit::needs(&["ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-appctl"], test)
}

#[test]
fn open_vswitch_passes_every_fixture_that_it_can() {
    if !has_open_vswitch("open_vswitch_passes_every_fixture_that_it_can") {
        return;
    }
    let (mut controller, mut switch) = controlled(&[], false);
    let mut failures = Vec::new();
    let (all, empty) = (headers_only::supported(&tables()), TableSet::default());
    // The controller answers the switch in between, which otherwise takes it for dead.
    let run = |fixtures: &[Fixture], switch: &mut OpenVSwitch, controller: &mut OpenFlowSwitch, tables| {
        let failure = |fixture: &Fixture| {
            controller.turn(now());
            failure(fixture, switch, tables)
        };
        fixtures.iter().filter_map(failure).collect::<Vec<String>>()
    };
    let (full, bare): (Vec<Fixture>, Vec<Fixture>) =
        cases::all().into_iter().partition(|fixture| fixture.installed);
    controller.install(&empty).unwrap();
    failures.extend(run(&bare, &mut switch, &mut controller, &empty));
    controller.install(&with_openflow_ports(all.clone())).unwrap();
    failures.extend(run(&full, &mut switch, &mut controller, &all));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The counts of the entries are those of the packets. The switch adds them up with some delay.
    let hits = |controller: &OpenFlowSwitch| controller.entry_hits(Table::Unicast).unwrap()[0];
    let mut before = 0;
    loop {
        let since = Instant::now();
        work(&mut controller, |_| since.elapsed() > Duration::from_secs(3));
        if before > 9 && before == hits(&controller) {
            break;
        }
        before = hits(&controller);
    }
    let probe = full.iter().find(|fixture| fixture.name == "unicast default host").unwrap();
    (0..5).for_each(|_| drop(switch.process(probe.ingress, &probe.frame)));
    work(&mut controller, |controller| hits(controller) == before + 5);
}

#[test]
fn open_vswitch_passes_the_fixtures_with_trunks() {
    if !has_open_vswitch("open_vswitch_passes_the_fixtures_with_trunks") {
        return;
    }
    let (mut controller, mut switch) = controlled(&[3, 4], false);
    let tables = headers_only::supported(&trunks::tables());
    controller.install(&with_openflow_ports(tables.clone())).unwrap();
    let failures: Vec<String> =
        trunks::all().iter().filter_map(|fixture| failure(fixture, &mut switch, &tables)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tables_stay_without_a_controller_and_a_deposed_one_is_refused() {
    if !has_open_vswitch("tables_stay_without_a_controller_and_a_deposed_one_is_refused") {
        return;
    }
    let (mut controller, mut switch) = controlled(&[], false);
    let tables = headers_only::supported(&tables());
    controller.obey(5);
    controller.install(&with_openflow_ports(tables.clone())).unwrap();
    let probe = cases::all().into_iter().find(|fixture| fixture.name == "unicast default host").unwrap();
    let address = controller.address().unwrap();
    drop(controller);
    assert_eq!(switch.process(probe.ingress, &probe.frame), probe.expected.frames, "fail secure");
    // An older leader's controller comes at the same address.
    let next = |term: u64| {
        let listener = listen(address).unwrap();
        let mut controller = OpenFlowSwitch::new(listener, fabric(&[], false));
        controller.obey(term);
        controller
    };
    let mut other = tables.clone();
    other.unicast[0].host = HostId(3);
    let other = with_openflow_ports(other);
    let refused = next(4).install(&other).unwrap_err().to_string();
    assert!(refused.contains("newer term"), "{refused}");
    assert_eq!(switch.process(probe.ingress, &probe.frame), probe.expected.frames);
    let mut controller = next(6);
    controller.install(&other).unwrap();
    let to_port_3 = |frames: &[(u16, Vec<u8>)]| matches!(frames, [(3, _)]);
    switch.eventually(&probe, to_port_3);
    // A leader of a newer term is obeyed within the same connection.
    controller.obey(7);
    controller.install(&with_openflow_ports(tables)).unwrap();
    switch.eventually(&probe, |frames| frames == probe.expected.frames);
}

#[test]
fn stations_are_learned_and_followed() {
    if !has_open_vswitch("stations_are_learned_and_followed") {
        return;
    }
    let (mut controller, mut switch) = controlled(&[], true);
    controller.install(&with_openflow_ports(headers_only::supported(&tables()))).unwrap();
    let station = [2, 0, 0, 0, 8, 7];
    let from = nicekv_switch_fixtures::teaching_frame(station);
    let to = frames::ethernet(station, [2, 0, 0, 0, 9, 9], 0x88b5);
    let ports = |switch: &mut OpenVSwitch| -> Vec<u16> {
        switch.process(0, &to).into_iter().map(|(port, _)| port).collect()
    };
    assert_eq!(ports(&mut switch), [1, 2, 3, 4, 5], "unknown: to all");
    for port in [4, 5] {
        switch.process(port, &from);
        let since = Instant::now();
        loop {
            work(&mut controller, |_| true);
            controller.turn(now());
            if ports(&mut switch) == [port] {
                break;
            }
            assert!(since.elapsed() < TIMEOUT, "port {port} is not learned");
        }
    }
}

#[test]
fn switch_that_restarts_gets_its_tables_again_and_another_one_is_refused() {
    if !has_open_vswitch("switch_that_restarts_gets_its_tables_again_and_another_one_is_refused") {
        return;
    }
    let (mut controller, mut switch) = controlled(&[], false);
    controller.install(&with_openflow_ports(headers_only::supported(&tables()))).unwrap();
    let probe = cases::all().into_iter().find(|fixture| fixture.name == "unicast default host").unwrap();
    let address = controller.address().unwrap();
    let other = "add-br br1 -- set bridge br1 datapath_type=dummy protocols=OpenFlow13 fail-mode=secure";
    switch.configure(other);
    switch.configure(&format!("set-controller br1 tcp:{address}"));
    work(&mut controller, |controller| controller.refused_datapath().is_some());
    assert_eq!(switch.process(probe.ingress, &probe.frame), probe.expected.frames);
    switch.configure("del-br br1");
    let mut killed = switch.processes.pop().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    work(&mut controller, |controller| !controller.is_ready());
    let refused =
        controller.install(&TableSet { generation: 9, ..TableSet::default() }).unwrap_err().to_string();
    assert!(refused.contains("not connected"), "{refused}");
    let database = switch.database();
    std::fs::remove_file(switch.path("ovs-vswitchd.ctl")).unwrap();
    switch.spawn("ovs-vswitchd", &[&database, "--enable-dummy", "--disable-system"]);
    switch.read.fill(FILE_HEADER);
    let since = Instant::now();
    loop {
        let until = Instant::now() + Duration::from_millis(50);
        work(&mut controller, |_| Instant::now() > until);
        switch.put(probe.ingress, &probe.frame);
        if switch.take().contains(&probe.expected.frames[0]) {
            break;
        }
        assert!(since.elapsed() < TIMEOUT, "the tables do not come back");
    }
}

/// Processor time of this process's thread with this name, in clock ticks of 10 ms.
fn ticks_of_thread(name: &str) -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    let of_thread = |stat: String| {
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let is_it = before.split_once('(')?.1 == name;
        is_it.then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    };
    stats.filter_map(of_thread).next().expect("the thread")
}

#[test]
fn agent_installs_tables_and_sleeps_when_nothing_happens() {
    if !has_open_vswitch("agent_installs_tables_and_sleeps_when_nothing_happens") {
        return;
    }
    let (controller, mut switch) = controlled(&[], true);
    let metadata = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = metadata.local_addr().unwrap() else { panic!("IPv4") };
    let (stop, link) = (Stop::new(), AgentLink::new("switch", &[address]));
    let stopping = stop.clone();
    let run = move || run_openflow(link, &mut switch_agent(controller, None), &stopping);
    let thread = std::thread::Builder::new().name("openflow-agent".into()).spawn(run).unwrap();
    wait(&mut [readable(&metadata)], None).unwrap();
    let mut stream = FramedStream::new(accept(&metadata).unwrap().unwrap(), CONTROL_LIMITS);
    let idle = |stream: &mut FramedStream| {
        // Its greeting and its ports.
        std::thread::sleep(Duration::from_millis(300));
        stream.receive(|_| ()).unwrap();
        let before = ticks_of_thread("openflow-agent");
        std::thread::sleep(Duration::from_secs(2));
        let used = ticks_of_thread("openflow-agent") - before;
        assert!(used < 40, "{used} ticks of 200");
    };
    idle(&mut stream);
    let tables = with_openflow_ports(headers_only::supported(&tables()));
    let generation = tables.generation;
    stream.queue(&encode(&ControlRequest::Install { term: 3, tables }).unwrap()).unwrap();
    stream.flush().unwrap();
    let mut installed = false;
    while !installed {
        wait(&mut [stream.interest()], None).unwrap();
        let expected = ControlReply::Installed { term: 3, generation };
        stream.receive(|frame| installed |= decode::<ControlReply>(frame).unwrap() == expected).unwrap();
    }
    let probe = cases::all().into_iter().find(|fixture| fixture.name == "unicast default host").unwrap();
    assert_eq!(switch.process(probe.ingress, &probe.frame), probe.expected.frames);
    idle(&mut stream);
    stop.stop();
    thread.join().unwrap().unwrap();
}

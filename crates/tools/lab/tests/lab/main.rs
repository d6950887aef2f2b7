//! Labs of a stub program, which is this test itself. Without arguments it runs the tests below.
//! With the arguments of `nicekv` it plays the program: its switch is real, and its other roles are
//! stubs ([`stub`]). So hosts, links, forwarding and removal are tested without the store.

mod fixture;
mod stub;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use fixture::{LabUnderTest, not_run, text};

/// User id of an unprivileged user.
const NOBODY: u32 = 65534;
/// Number of moments at which `up` is killed, spread over its duration.
const CRASH_MOMENTS: u32 = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first() {
        Some(first) if stub::ROLES.contains(&first.as_str()) => stub::main(&arguments),
        _ => run_tests(arguments.iter().find(|argument| !argument.starts_with('-')).map(String::as_str)),
    }
}

fn run_tests(filter: Option<&str>) -> ExitCode {
    let tests: [(&str, fn()); 6] = [
        ("hosts_reach_each_other", hosts_reach_each_other),
        ("processes_are_killed_and_started", processes_are_killed_and_started),
        ("faults_are_those_of_one_host", faults_are_those_of_one_host),
        ("nothing_is_left_of_an_up_that_was_killed", nothing_is_left_of_an_up_that_was_killed),
        ("nothing_is_left_of_an_up_that_fails", nothing_is_left_of_an_up_that_fails),
        ("mistakes_are_refused_with_one_line", mistakes_are_refused_with_one_line),
    ];
    let mut failures = 0;
    for (name, test) in tests {
        if filter.is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        if !rustix::process::geteuid().is_root() {
            not_run("root", name);
            continue;
        }
        let started = Instant::now();
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {} ({:.1?})", if passed { "ok" } else { "FAILED" }, started.elapsed());
        failures += u32::from(!passed);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The program whose `lab` command is tested: this one.
pub(crate) fn program() -> String {
    std::env::current_exe().unwrap().into_os_string().into_string().unwrap()
}

fn hosts_reach_each_other() {
    [("xdp", "1"), ("tc", "1"), ("xdp", "3"), ("tc", "2")]
        .into_iter()
        .for_each(hosts_reach_each_other_through);
}

/// Of several switches, hosts with odd numbers are attached to another one.
fn hosts_reach_each_other_through((switch, switches): (&str, &str)) {
    let arguments = ["--nodes", "2", "--clients", "2", "--replicas", "2", "--switch", switch];
    let lab = LabUnderTest::up("reach", &[&arguments[..], &["--switches", switches]].concat());
    // ARP and TCP: a node's stub echoes what it receives.
    for (from, to) in
        [("client-0", "10.20.1.1:7400"), ("client-0", "10.20.1.2:7400"), ("node-1", "10.20.1.1:7400")]
    {
        lab.succeeds(&["exec", from, "--", &program(), "tcp", to]);
    }
    assert!(text(&lab.command(&["status"]).output().unwrap().stdout).contains(&format!(" at {switch}\n")));
    match lab.command(&["exec", "switch", "--", "bpftool", "net"]).output() {
        Ok(output) if output.status.success() && switches == "1" => {
            let (shown, native) = (text(&output.stdout), if switch == "xdp" { 5 } else { 0 });
            assert_eq!(shown.matches("driver").count(), native, "one native program for each port:\n{shown}");
        }
        Ok(output) if output.status.success() => {}
        _ => drop(nicekv_testkit::needs(&["bpftool"], "the mode of the programs")),
    }
    let output = lab.command(&["exec", "node-0", "--", "sh", "-c", "exit 37"]).output().unwrap();
    assert_eq!(output.status.code(), Some(37), "the exit code is passed on");
    lab.down();
}

fn processes_are_killed_and_started() {
    let lab = LabUnderTest::up("kill", &["--nodes", "2", "--clients", "1", "--replicas", "1"]);
    for host in ["node-1", "client-0", "metadata", "switch"] {
        assert_eq!(lab.state_of(host), "running");
        lab.succeeds(&["kill", host]);
        assert_eq!(lab.state_of(host), "ended");
        lab.refuses(&["kill", host], "is not running");
        lab.succeeds(&["start", host]);
        assert_eq!(lab.state_of(host), "running");
        lab.refuses(&["start", host], "is running already");
    }
    let program = program();
    let exchange = ["exec", "client-0", "--", &program, "tcp", "10.20.1.1:7400"];
    lab.succeeds(&exchange);
    lab.succeeds(&["kill", "switch"]);
    let in_vain = [&exchange[..], &["--timeout-ms", "500"]].concat();
    let output = lab.command(&in_vain).output().unwrap();
    assert!(!output.status.success(), "without the switch no packet arrives");
    lab.succeeds(&["start", "switch"]);
    lab.succeeds(&exchange);
    // A process that the lab has not recorded.
    let mut stray = lab.command(&["exec", "node-0", "--", "sleep", "1000"]).spawn().unwrap();
    lab.down();
    stray.wait().unwrap();
}

fn faults_are_those_of_one_host() {
    let lab = LabUnderTest::up("faults", &["--nodes", "2", "--clients", "1", "--replicas", "1"]);
    let program = program();
    let reaches = |address: &str, timeout_ms: &str| {
        let exchange = ["exec", "client-0", "--", &program, "tcp", address, "--timeout-ms", timeout_ms];
        lab.command(&exchange).output().unwrap().status.success()
    };
    let assert_reached = |expected: [bool; 2], when: &str| {
        for (address, expected) in ["10.20.1.1:7400", "10.20.1.2:7400"].into_iter().zip(expected) {
            // The absence of a packet is not awaited for as long as its arrival.
            let timeout_ms = if expected { "20000" } else { "500" };
            assert_eq!(reaches(address, timeout_ms), expected, "{address}, {when}");
        }
    };
    assert_reached([true, true], "at first");
    for direction in [&[][..], &["--in"], &["--out"]] {
        lab.succeeds(&[&["cut", "node-0"], direction].concat());
        assert_reached([false, true], &format!("cut {direction:?}"));
        lab.succeeds(&["switch-restart"]);
        assert_reached([false, true], &format!("cut {direction:?}, and the switch has started again"));
    }
    let faults = |lab: &LabUnderTest| lab.host("node-0")["faults"].clone();
    assert_eq!((&faults(&lab)["cut_in"], &faults(&lab)["cut_out"]), (&false.into(), &true.into()));
    assert!(faults(&lab)["lost_frames"].as_u64() > Some(0), "{}", faults(&lab));
    lab.succeeds(&["heal", "node-0"]);
    assert_reached([true, true], "healed");
    assert_eq!(faults(&lab), serde_json::Value::Null);

    lab.succeeds(&["loss", "2.5", "node-0"]);
    lab.succeeds(&["duplicate", "100"]);
    let shown = text(&lab.command(&["status"]).output().unwrap().stdout);
    assert!(shown.contains("loss 2.5 %, duplicate 100 %\n"), "{shown}");
    assert_reached([true, true], "TCP survives that");
    assert!(lab.host("client-0")["faults"]["doubled_frames"].as_u64() > Some(0));
    lab.succeeds(&["heal"]);

    lab.succeeds(&["pause", "node-1"]);
    assert_eq!(lab.state_of("node-1"), "paused");
    lab.succeeds(&["resume", "node-1"]);
    assert_eq!(lab.state_of("node-1"), "running");
    assert_reached([true, true], "resumed");
    lab.refuses(&["cut", "switch"], "no link");
    for wrong in [&["loss", "101"][..], &["cut", "node-0", "--in", "--out"]] {
        assert_eq!(lab.command(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
    // `down` also removes a paused process, and a switch with faults.
    lab.succeeds(&["pause", "node-0"]);
    lab.succeeds(&["cut", "node-1"]);
    lab.down();
}

fn nothing_is_left_of_an_up_that_was_killed() {
    let arguments = ["--nodes", "2", "--clients", "1", "--replicas", "1"];
    let started = Instant::now();
    let lab = LabUnderTest::up("crash", &arguments);
    let duration = started.elapsed();
    lab.down();
    for moment in 0..CRASH_MOMENTS {
        let after = duration * moment / CRASH_MOMENTS;
        let lab = LabUnderTest::new("crash");
        let mut up = lab.command(&[&["up"][..], &arguments].concat()).spawn().unwrap();
        std::thread::sleep(after);
        up.kill().unwrap();
        up.wait().unwrap();
        println!("killed after {after:.0?} with {} namespaces", lab.namespaces().len());
        lab.down();
    }
    // A `down` that is killed leaves nothing behind either.
    for moment in 0..CRASH_MOMENTS {
        let lab = LabUnderTest::up("crash", &arguments);
        let mut down = lab.command(&["down"]).spawn().unwrap();
        std::thread::sleep(duration * moment / CRASH_MOMENTS);
        down.kill().unwrap();
        down.wait().unwrap();
        lab.down();
    }
}

fn nothing_is_left_of_an_up_that_fails() {
    let lab = LabUnderTest::new("fail");
    let mut up = lab.command(&["up", "--nodes", "2", "--clients", "1", "--replicas", "1"]);
    let output = up.env(stub::FAIL_VARIABLE, "node-1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "the process of node-1 has ended; its last log line: as the test demands\n"
    );
    lab.assert_nothing_left();

    // The metadata service never becomes ready, and an operator interrupts `up`.
    let mut up = lab.command(&["up", "--nodes", "2", "--clients", "1", "--replicas", "1"]);
    let mut up = up.env(stub::FAIL_VARIABLE, "ready").stderr(std::process::Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while lab.processes() < 6 {
        assert!(Instant::now() < deadline, "the processes were not started");
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&up), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(1));
    lab.assert_nothing_left();
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

fn mistakes_are_refused_with_one_line() {
    let lab = LabUnderTest::new("mistakes");
    lab.refuses(&["up", "--nodes", "2", "--replicas", "3"], "3 replicas");
    lab.refuses(&["up", "--nodes", "101"], "101 nodes");
    lab.refuses(&["up", "--clients", "0"], "0 clients");
    let unknown = lab.command(&["up", "--switch", "XDP"]).output().unwrap();
    assert!(
        unknown.status.code() == Some(2)
            && text(&unknown.stderr).contains("is not xdp, tc, auto or openflow")
    );
    for command in
        [&["status"][..], &["kill", "node-0"], &["start", "node-0"], &["exec", "node-0", "--", "true"]]
    {
        lab.refuses(command, "no lab is running");
    }
    lab.refuses(&["up", "--switch", "xdp", "--mtu", "9000"], "3506");
    lab.refuses(&["up", "--engine", "memory", "--data-dir", "/tmp"], "memory engine");
    lab.succeeds(&["down"]);
    match lab.command(&["up"]).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1)),
        Err(_) => not_run("a directory that everybody may read", "lab up as an ordinary user"),
    }
    lab.assert_nothing_left();

    let stranger = format!("{}node-0", lab.namespace_prefix());
    ip(&["netns", "add", &stranger]);
    lab.refuses(&["up"], "belongs to no lab");
    lab.succeeds(&["down"]);
    assert_eq!(lab.namespaces(), [stranger.as_str()], "down takes only what up has made");
    ip(&["netns", "del", &stranger]);

    let arguments = ["--nodes", "1", "--clients", "1", "--replicas", "1"];
    let lab = LabUnderTest::up("twice", &arguments);
    lab.refuses(&[&["up"][..], &arguments].concat(), "a lab already exists");
    lab.refuses(&["kill", "node-1"], "its hosts are switch, metadata, node-0, client-0");
    assert_eq!(lab.state_of("node-0"), "running", "the second one has not harmed the first");
    lab.down();
}

//! Faults as nftables rules, where no eBPF program of ours handles the frames: on a plain network and
//! with Open vSwitch.
//!
//! On a plain network the rules are at the ports of the bridge. Frames are duplicated where they leave
//! the bridge, so that each receiver gets them twice.
//!
//! Open vSwitch takes frames from its ports before any rule there. So each end of a link has rules for
//! what it sends:
//!
//! ```text
//!   ns node-0                     ns switch
//!     eth0 ──▶ rules ── veth ──▶ node-0 ─▶ Open vSwitch       cut --out, loss, duplicate
//!     eth0 ◀── veth ── rules ◀── node-0 ◀─ Open vSwitch       cut --in, loss
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use crate::error::{LabError, Result};
use crate::layout::Layout;
use crate::scope::Scope;
use crate::state::{Faults, LabState, LinkFaults};
use crate::topology::{Host, INTERFACE, format_mac, mac};

/// Probability 1, in the unit of the rules.
const PPM: u32 = 1_000_000;
const TOOL: &str = "nft";
/// Deletes the existing rules.
const BEGIN: &str = "table netdev faults {}\ndelete table netdev faults\ntable netdev faults {\n";

/// The rules for what is sent through each device of a namespace.
type Devices = BTreeMap<String, Vec<String>>;

/// Applies the faults in the state file to a plain network.
pub(super) fn apply_at_bridge(scope: &Scope, state: &LabState) -> Result<()> {
    let hosts: Vec<Host> = state.hosts.iter().map(|host| host.name).filter(|host| host.has_link()).collect();
    load(scope, Host::Fabric, &rules(&hosts, &state.faults))
}

/// Applies the faults in the state file to the ends of all links.
pub(super) fn apply_at_ends(scope: &Scope, state: &LabState) -> Result<()> {
    let hosts: Vec<Host> = state.hosts.iter().map(|host| host.name).collect();
    let ends = ends(state.layout(), &hosts, &state.faults);
    ends.into_iter().try_for_each(|(machine, devices)| load(scope, machine, &rules_of_ends(&devices)))
}

/// Replaces all rules in the namespace of a host.
fn load(scope: &Scope, machine: Host, rules: &str) -> Result<()> {
    let failed = |reason: String| LabError::Tool { command: format!("{TOOL} -f -"), reason };
    let ran = scope.namespace(machine).inside(|| run(rules))?;
    let output = ran.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LabError::ToolMissing { tool: TOOL.into() },
        _ => failed(error.to_string()),
    })?;
    let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    if output.status.success() { Ok(()) } else { Err(failed(said)) }
}

fn run(rules: &str) -> io::Result<std::process::Output> {
    let mut command = Command::new(TOOL);
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("asked for").write_all(rules.as_bytes())?;
    child.wait_with_output()
}

/// The rules that replace all existing ones in one transaction.
fn rules(hosts: &[Host], faults: &Faults) -> String {
    let mut rules = BEGIN.to_owned();
    for (number, host) in hosts.iter().enumerate() {
        let of = faults.get(host).copied().unwrap_or_default();
        let mut add = |hook, lines: &[String]| add_chain(&mut rules, hook, number, &host.to_string(), lines);
        add("ingress", &lost(of.cut_out, &of));
        let doubled = hosts.iter().filter(|other| *other != host);
        let doubled = doubled.filter_map(|sender| doubled_for(*sender, *host, faults.get(sender)?));
        add("egress", &lost(of.cut_in, &of).into_iter().chain(doubled).collect::<Vec<_>>());
    }
    rules + "}\n"
}

/// The devices of each namespace that are ends of links, with rules for what they send. A trunk has
/// the faults of both its switches.
fn ends(layout: Layout, hosts: &[Host], faults: &Faults) -> BTreeMap<Host, Devices> {
    let mut ends = BTreeMap::<Host, Devices>::new();
    let mut at = |machine, device: String, rules: Vec<String>| {
        ends.entry(machine).or_default().entry(device).or_default().extend(rules);
    };
    for host in hosts.iter().copied().filter(|host| host.is_at_port()) {
        let of = faults.get(&host).copied().unwrap_or_default();
        let switches = if host.has_link() { vec![layout.home(host)] } else { layout.neighbours(host) };
        for switch in switches {
            at(switch, host.to_string(), lost(of.cut_in, &of));
            let device = if host.has_link() { INTERFACE.to_owned() } else { switch.to_string() };
            let doubled = chance(of.duplicate_percent).map(|chance| format!("{chance}dup to \"{device}\";"));
            at(host, device, lost(of.cut_out, &of).into_iter().chain(doubled).collect());
        }
    }
    ends
}

fn rules_of_ends(devices: &Devices) -> String {
    let mut rules = BEGIN.to_owned();
    for (number, (device, lines)) in devices.iter().enumerate() {
        add_chain(&mut rules, "egress", number, device, lines);
    }
    rules + "}\n"
}

/// Adds a chain with rules for a hook of a device. `number` tells it from the others of that hook.
fn add_chain(rules: &mut String, hook: &str, number: usize, device: &str, lines: &[String]) {
    let head = format!("chain {hook}{number} {{ type filter hook {hook} device \"{device}\" priority 0;");
    writeln!(rules, "{head} {} }}", lines.join(" ")).expect("strings take everything");
}

fn lost(is_cut: bool, faults: &LinkFaults) -> Vec<String> {
    let share = if is_cut { 100.0 } else { faults.loss_percent };
    chance(share).map(|chance| format!("{chance}drop;")).into_iter().collect()
}

fn doubled_for(sender: Host, receiver: Host, faults: &LinkFaults) -> Option<String> {
    let (chance, sender) = (chance(faults.duplicate_percent)?, format_mac(mac(sender.address())));
    Some(format!("ether saddr {sender} {chance}dup to \"{receiver}\";"))
}

/// A condition that holds with this probability: `None` for never, empty for always.
fn chance(percent: f64) -> Option<String> {
    match (percent / 100.0 * f64::from(PPM)).round() as u32 {
        0 => None,
        PPM.. => Some(String::new()),
        ppm => Some(format!("numgen random mod {PPM} < {ppm} ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Shape, hosts};
    use crate::topology::Fabric;

    #[test]
    fn rules_are_per_port() {
        let faults = Faults::from([
            (Host::Node(0), LinkFaults { cut_in: true, loss_percent: 2.5, ..LinkFaults::default() }),
            (Host::Client(0), LinkFaults { duplicate_percent: 30.0, ..LinkFaults::default() }),
        ]);
        let rules = rules(&[Host::Node(0), Host::Client(0)], &faults);
        let expected = [
            "chain ingress0 { type filter hook ingress device \"node-0\" priority 0; numgen random mod 1000000 < 25000 drop; }",
            "chain egress0 { type filter hook egress device \"node-0\" priority 0; drop; \
             ether saddr 02:00:0a:14:02:01 numgen random mod 1000000 < 300000 dup to \"node-0\"; }",
            "chain ingress1 { type filter hook ingress device \"client-0\" priority 0;  }",
            "chain egress1 { type filter hook egress device \"client-0\" priority 0;  }",
        ];
        assert_eq!(rules.lines().skip(3).take(4).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_end_of_a_link_has_the_faults_of_what_it_sends() {
        let layout = Layout::new(Shape::Tree, 2, 2);
        let faults = Faults::from([
            (Host::Node(0), LinkFaults { cut_in: true, loss_percent: 2.5, ..LinkFaults::default() }),
            (Host::FurtherSwitch(1), LinkFaults { cut_out: true, ..LinkFaults::default() }),
            (Host::Client(0), LinkFaults { duplicate_percent: 30.0, ..LinkFaults::default() }),
        ]);
        let ends = ends(layout, &hosts(2, 1, Fabric::Switch, layout), &faults);
        let there = |machine: Host, device: &str| ends[&machine][device].join(" ");
        let home = layout.home(Host::Node(0));
        assert_eq!(there(home, "node-0"), "drop;");
        assert_eq!(there(Host::Node(0), "eth0"), "numgen random mod 1000000 < 25000 drop;");
        assert_eq!(there(Host::Switch, "switch-1"), "");
        assert_eq!(there(Host::FurtherSwitch(1), "switch"), "drop;");
        assert_eq!(there(Host::Client(0), "eth0"), "numgen random mod 1000000 < 300000 dup to \"eth0\";");
        assert_eq!(ends.len(), 6, "two nodes, a client, the metadata service, two switches");
        let rules = rules_of_ends(&ends[&Host::Client(0)]);
        let expected = "chain egress0 { type filter hook egress device \"eth0\" priority 0; \
                        numgen random mod 1000000 < 300000 dup to \"eth0\"; }";
        assert_eq!(rules.lines().nth(3), Some(expected));
    }
}

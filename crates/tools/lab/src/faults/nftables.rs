//! Faults on a plain network: nftables rules at the ports of the bridge.
//!
//! Frames are duplicated where they leave the bridge, so that each receiver gets them twice.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use crate::error::{LabError, Result};
use crate::scope::Scope;
use crate::state::{Faults, LabState, LinkFaults};
use crate::topology::{Host, format_mac, mac};

/// Probability 1, in the unit of the rules.
const PPM: u32 = 1_000_000;
const TOOL: &str = "nft";

pub(super) fn apply(scope: &Scope, state: &LabState) -> Result<()> {
    let hosts: Vec<Host> = state.hosts.iter().map(|host| host.name).filter(|host| host.has_link()).collect();
    let failed = |reason: String| LabError::Tool { command: format!("{TOOL} -f -"), reason };
    let ran = scope.namespace(Host::Fabric).inside(|| run(&rules(&hosts, &state.faults)))?;
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
    let mut rules = "table netdev faults {}\ndelete table netdev faults\ntable netdev faults {\n".to_owned();
    for (number, host) in hosts.iter().enumerate() {
        let of = faults.get(host).copied().unwrap_or_default();
        let mut chain = |hook: &str, lines: &[String]| {
            let head =
                format!("chain {hook}{number} {{ type filter hook {hook} device \"{host}\" priority 0;");
            writeln!(rules, "{head} {} }}", lines.join(" ")).expect("strings take everything");
        };
        chain("ingress", &lost(of.cut_out, &of));
        let doubled = hosts.iter().filter(|other| *other != host);
        let doubled = doubled.filter_map(|sender| doubled_for(*sender, *host, faults.get(sender)?));
        chain("egress", &lost(of.cut_in, &of).into_iter().chain(doubled).collect::<Vec<_>>());
    }
    rules + "}\n"
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
}

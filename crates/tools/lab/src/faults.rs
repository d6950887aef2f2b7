//! Faults of the network: cuts, loss and duplicates at a host's port of the switch, and links
//! between switches that are down.
//!
//! ```text
//!   nicekv lab cut | loss | duplicate | heal ─▶ lab.json ─▶ maps of the switch's programs
//!   nicekv lab start switch | switch-restart ────────┘
//! ```
//!
//! On a plain network and with Open vSwitch, faults are nftables rules ([`nftables`]).
//!
//! The state file lists the faults. A restarted switch gets those in its programs some milliseconds
//! after it begins to forward. The management link between the switch and the metadata service has no port and no
//! faults.

mod nftables;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use nicekv_switch_xdp::faults::{FaultControl, FaultCounts, PortFaults};

use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::lock::Lock;
use crate::scope::Scope;
use crate::state::{LabState, LinkFaults};
use crate::tool::run;
use crate::topology::{Fabric, Host};

/// Maximum time in which a switch that has just started loads its programs.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Converts a host's faults to those of the switch's port to it, where in and out are swapped.
fn at_port(faults: &LinkFaults) -> PortFaults {
    let lost = |cut: bool| if cut { 1.0 } else { faults.loss_percent / 100.0 };
    PortFaults {
        lost_from: lost(faults.cut_out),
        lost_to: lost(faults.cut_in),
        doubled: faults.duplicate_percent / 100.0,
    }
}

/// Changes the faults of one host's link, or of all links.
pub(crate) fn change(scope: &Scope, host: Option<&str>, change: impl Fn(&mut LinkFaults)) -> Result<()> {
    let _lock = Lock::take(scope)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let hosts = match host {
        Some(name) => vec![state.host_mut(name)?.name],
        None => state.hosts.iter().map(|host| host.name).filter(|host| host.is_at_port()).collect(),
    };
    if !hosts.iter().all(|host| host.is_at_port()) {
        return Err(LabError::NoLink);
    }
    for host in hosts {
        change(state.faults.entry(host).or_default());
    }
    state.faults.retain(|_, faults| *faults != LinkFaults::default());
    state.save(scope)?;
    apply(scope, &state)
}

/// Applies the faults in the state file to the plain network, or to the running switches.
pub(crate) fn apply(scope: &Scope, state: &LabState) -> Result<()> {
    if state.fabric == Fabric::Plain {
        return nftables::apply_at_bridge(scope, state);
    }
    if state.switch == DataPlane::OpenFlow {
        return nftables::apply_at_ends(scope, state);
    }
    state.layout().switches().try_for_each(|switch| apply_at(scope, state, switch))
}

fn apply_at(scope: &Scope, state: &LabState, switch: Host) -> Result<()> {
    let Some(process) = state.process(switch) else { return Ok(()) };
    let by_interface = by_interface(scope, state, switch)?;
    let deadline = Instant::now() + LOAD_TIMEOUT;
    while process.is_alive() {
        if let Some(mut control) = FaultControl::of_process(process.pid)?
            && control.set(&by_interface)?
        {
            return Ok(());
        }
        if process.is_paused() {
            // A paused switch cannot load its programs now: `resume` applies the faults.
            return Ok(());
        }
        if Instant::now() > deadline {
            let reason = "the switch has not loaded its programs".into();
            return Err(LabError::NotReady { seconds: LOAD_TIMEOUT.as_secs(), reason });
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    Ok(())
}

/// Frames dropped and duplicated since the switches started; empty if none is running.
pub(crate) fn counts(scope: &Scope, state: &LabState) -> Result<BTreeMap<Host, FaultCounts>> {
    let mut all = BTreeMap::new();
    for switch in state.layout().switches() {
        let Some(process) = state.process(switch) else { continue };
        let Some(control) = FaultControl::of_process(process.pid)? else { continue };
        let counts = control.counts()?;
        for (host, _) in of_switch(state, switch) {
            let count = counts.get(&interface(scope, switch, host)?);
            all.extend(count.map(|count| (host, *count)));
        }
    }
    Ok(all)
}

/// The faults at the ports of one switch. Faults of a whole switch are applied at the other ends of
/// its trunks.
fn of_switch(state: &LabState, switch: Host) -> impl Iterator<Item = (Host, &LinkFaults)> {
    let faults = state.faults.iter().map(|(host, faults)| (*host, faults));
    let layout = state.layout();
    faults.filter(move |(host, _)| match host.switch() {
        Some(_) => layout.neighbours(*host).contains(&switch),
        None => layout.home(*host) == switch,
    })
}

fn by_interface(scope: &Scope, state: &LabState, switch: Host) -> Result<BTreeMap<u32, PortFaults>> {
    let at = |(host, faults): (Host, &LinkFaults)| Ok((interface(scope, switch, host)?, at_port(faults)));
    of_switch(state, switch).map(at).collect()
}

/// The switch's interface to a host.
fn interface(scope: &Scope, switch: Host, host: Host) -> Result<u32> {
    let find = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(rustix::net::netdevice::name_to_index(&socket, &host.to_string())?)
    };
    scope.namespace(switch).inside(find)?.map_err(LabError::system(format!("find the port of {host}")))
}

/// Takes the link between two switches down, or brings it up again. Unlike an injected fault, both
/// ends notice it.
pub(crate) fn set_link(scope: &Scope, one: &str, other: &str, is_up: bool) -> Result<()> {
    let lock = Lock::take(scope)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let (one, other) = (state.host_mut(one)?.name, state.host_mut(other)?.name);
    let link = state.layout().link(one, other).ok_or(LabError::NoTrunk { one, other })?;
    match is_up {
        true => state.unplugged.remove(&link),
        false => state.unplugged.insert(link),
    };
    state.save(scope)?;
    set_interface(&lock, scope, link, is_up)
}

/// Brings all links between switches up.
pub(crate) fn plug_all(scope: &Scope) -> Result<()> {
    let lock = Lock::take(scope)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let unplugged = std::mem::take(&mut state.unplugged);
    state.save(scope)?;
    unplugged.into_iter().try_for_each(|link| set_interface(&lock, scope, link, true))
}

fn set_interface(lock: &Lock, scope: &Scope, (above, below): (Host, Host), is_up: bool) -> Result<()> {
    let (namespace, word) = (scope.namespace(above), if is_up { "up" } else { "down" });
    run(lock, &format!("ip -n {} link set {below} {word}", namespace.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_takes_precedence_over_loss() {
        let faults = LinkFaults { cut_in: true, cut_out: false, loss_percent: 10.0, duplicate_percent: 2.5 };
        assert_eq!(at_port(&faults), PortFaults { lost_from: 0.1, lost_to: 1.0, doubled: 0.025 });
    }
}

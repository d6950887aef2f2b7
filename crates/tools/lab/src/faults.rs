//! Faults of the network: cuts, loss and duplicates at the switch's port of a host.
//!
//! ```text
//!   nicekv lab cut | loss | duplicate | heal ─▶ lab.json ─▶ maps of the switch's programs
//!   nicekv lab start switch | switch-restart ────────┘
//! ```
//!
//! On a plain network they are rules of nftables at the bridge's ports ([`plain`]).
//!
//! What is in force is what the state file says: a switch that starts again is given it anew, some milliseconds after it begins to
//! forward. The management cable between the switch and the metadata service has no port and no faults.

mod plain;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use nicekv_switch_xdp::faults::{FaultControl, FaultCounts, PortFaults};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::lock::Lock;
use crate::scope::Scope;
use crate::state::LabState;
use crate::topology::{Fabric, Host};
use crate::up::PATIENCE;

/// A switch that has just started loads its programs within this time.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// What is wrong with the cable of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CableFaults {
    /// Nothing reaches the host.
    pub(crate) cut_in: bool,
    /// Nothing that it sends arrives.
    pub(crate) cut_out: bool,
    /// Frames that get lost, either way.
    pub(crate) loss_percent: f64,
    /// Frames that it sends and that arrive twice.
    pub(crate) duplicate_percent: f64,
}

/// Every cable that has faults.
pub(crate) type Faults = BTreeMap<Host, CableFaults>;

impl CableFaults {
    fn at_port(&self) -> PortFaults {
        let lost = |cut: bool| if cut { 1.0 } else { self.loss_percent / 100.0 };
        PortFaults {
            lost_from: lost(self.cut_out),
            lost_to: lost(self.cut_in),
            doubled: self.duplicate_percent / 100.0,
        }
    }
}

/// As `status` shows them: nothing, or ` cut in, loss 10 %`.
impl fmt::Display for CableFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = match (self.cut_in, self.cut_out) {
            (true, true) => Some("cut".to_owned()),
            (true, false) => Some("cut in".to_owned()),
            (false, true) => Some("cut out".to_owned()),
            (false, false) => None,
        };
        let share = |name, percent: f64| (percent > 0.0).then(|| format!("{name} {percent} %"));
        let parts = [cut, share("loss", self.loss_percent), share("duplicate", self.duplicate_percent)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(formatter, " {}", parts.join(", ")) }
    }
}

/// Changes the faults of one host's cable, or of all of them.
pub(crate) fn change(scope: &Scope, host: Option<&str>, change: impl Fn(&mut CableFaults)) -> Result<()> {
    let _lock = Lock::take(scope, PATIENCE)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let hosts = match host {
        Some(name) => vec![state.host_mut(name)?.name],
        None => state.hosts.iter().map(|host| host.name).filter(|host| host.is_at_port()).collect(),
    };
    if !hosts.iter().all(|host| host.is_at_port()) {
        return Err(LabError::NoCable);
    }
    for host in hosts {
        change(state.faults.entry(host).or_default());
    }
    state.faults.retain(|_, faults| *faults != CableFaults::default());
    state.save(scope)?;
    apply(scope, &state)
}

/// Brings the plain network, or the running switches, to what the state says.
pub(crate) fn apply(scope: &Scope, state: &LabState) -> Result<()> {
    if state.fabric == Fabric::Plain {
        return plain::apply(scope, state);
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
            // It can load nothing now: whoever lets it go on sees to that.
            return Ok(());
        }
        if Instant::now() > deadline {
            let reason = "the switch does not load its programs".into();
            return Err(LabError::NotReady { seconds: LOAD_TIMEOUT.as_secs(), reason });
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    Ok(())
}

/// How many frames were lost and doubled since the switches started. Empty where none runs.
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

/// The faults at the ports of one switch. Those of a switch are at the other ends of all of its trunks.
fn of_switch(state: &LabState, switch: Host) -> impl Iterator<Item = (Host, &CableFaults)> {
    let faults = state.faults.iter().map(|(host, faults)| (*host, faults));
    let layout = state.layout();
    faults.filter(move |(host, _)| match host.switch() {
        Some(_) => layout.neighbours(*host).contains(&switch),
        None => layout.home(*host) == switch,
    })
}

fn by_interface(scope: &Scope, state: &LabState, switch: Host) -> Result<BTreeMap<u32, PortFaults>> {
    let at = |(host, faults): (Host, &CableFaults)| Ok((interface(scope, switch, host)?, faults.at_port()));
    of_switch(state, switch).map(at).collect()
}

/// The interface of a switch that leads to a host.
fn interface(scope: &Scope, switch: Host, host: Host) -> Result<u32> {
    let find = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(rustix::net::netdevice::name_to_index(&socket, &host.to_string())?)
    };
    scope.namespace(switch).inside(find)?.map_err(LabError::system(format!("find the port of {host}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_outweighs_loss_and_directions_are_those_of_the_host() {
        let faults = CableFaults { cut_in: true, cut_out: false, loss_percent: 10.0, duplicate_percent: 2.5 };
        assert_eq!(faults.at_port(), PortFaults { lost_from: 0.1, lost_to: 1.0, doubled: 0.025 });
        assert_eq!(faults.to_string(), " cut in, loss 10 %, duplicate 2.5 %");
        assert_eq!(CableFaults::default().to_string(), "");
    }
}

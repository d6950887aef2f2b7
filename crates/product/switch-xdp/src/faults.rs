//! Injected faults, for tests: makes a switch that runs in another process lose and duplicate
//! frames at its ports.
//!
//! ```text
//!   test ── FaultControl::of_process(pid) ──▶ maps that the process holds (/proc/PID/fdinfo) ── set ──▶ bpf/faults.h
//! ```
//!
//! The maps belong to the switch's process: they disappear when it ends, so a restarted switch has
//! no faults.

use std::collections::BTreeMap;
use std::fs;

use aya::maps::{Array, HashMap, Map, MapData, MapError, MapInfo, MapType};

use crate::error::{KERNEL_ADVICE, XdpError};
use crate::layout::{Fault, PPM};

/// Name of the map of faults in `bpf/maps.h`.
pub(crate) const FAULTS: &str = "faults";
/// Name of the map that switches fault injection on.
pub(crate) const ACTIVE: &str = "faults_active";

/// The fault probabilities of a port, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortFaults {
    /// Probability that a frame from the host at the port is lost.
    pub lost_from: f64,
    /// Probability that a frame to this host is lost.
    pub lost_to: f64,
    /// Probability that a frame from this host is duplicated.
    pub doubled: f64,
}

/// Number of faults injected since the switch started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames lost.
    pub lost: u64,
    /// Frames duplicated.
    pub doubled: u64,
}

/// Sets the faults of a running switch.
pub struct FaultControl {
    active: Array<MapData, u32>,
    faults: HashMap<MapData, u32, Fault>,
}

impl FaultControl {
    /// Finds the switch of process `pid`; `None` if the process has not loaded one.
    pub fn of_process(pid: i32) -> Result<Option<Self>, XdpError> {
        let maps = maps_of(pid);
        match (maps.get(ACTIVE), maps.get(FAULTS)) {
            (Some(active), Some(faults)) => Self::open(*active, *faults).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn open(active: u32, faults: u32) -> Result<Self, XdpError> {
        let failed = |error: MapError| XdpError::new("open the switch's fault maps", &error, KERNEL_ADVICE);
        let open = |id: u32| MapData::from_id(id);
        let active = open(active).and_then(|data| Array::try_from(Map::Array(data))).map_err(failed)?;
        let faults = open(faults).and_then(|data| HashMap::try_from(Map::HashMap(data))).map_err(failed)?;
        Ok(Self { active, faults })
    }

    /// Replaces the faults of all ports; the keys are interface indexes. Returns false if the
    /// switch has not registered its ports yet.
    pub fn set(&mut self, faults: &BTreeMap<u32, PortFaults>) -> Result<bool, XdpError> {
        let failed = |error: MapError| XdpError::new("set the switch's faults", &error, KERNEL_ADVICE);
        let ports: BTreeMap<u32, Fault> = self.faults.iter().collect::<Result<_, _>>().map_err(failed)?;
        if faults.keys().any(|ifindex| !ports.contains_key(ifindex)) {
            return Ok(false);
        }
        for (ifindex, before) in ports {
            let PortFaults { lost_from, lost_to, doubled } =
                faults.get(&ifindex).copied().unwrap_or_default();
            let fault = Fault {
                lost_from_ppm: ppm(lost_from),
                lost_to_ppm: ppm(lost_to),
                doubled_ppm: ppm(doubled),
                ..before
            };
            self.faults.insert(ifindex, fault, 0).map_err(failed)?;
        }
        let active = faults.values().any(|fault| *fault != PortFaults::default());
        self.active.set(0, u32::from(active), 0).map_err(failed)?;
        Ok(true)
    }

    /// Injected faults, by interface index.
    pub fn counts(&self) -> Result<BTreeMap<u32, FaultCounts>, XdpError> {
        let counts = self.faults.iter().map(|entry| {
            entry.map(|(ifindex, fault)| (ifindex, FaultCounts { lost: fault.lost, doubled: fault.doubled }))
        });
        counts
            .collect::<Result<_, _>>()
            .map_err(|error| XdpError::new("read the switch's faults", &error, KERNEL_ADVICE))
    }
}

fn ppm(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(PPM)).round() as u32
}

/// The array and hash maps of a process: name → id. Empty if the process has ended.
fn maps_of(pid: i32) -> BTreeMap<String, u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse::<u32>().ok())
    });
    ids.filter_map(|id| {
        let info = MapInfo::from_id(id).ok()?;
        matches!(info.map_type().ok()?, MapType::Array | MapType::Hash)
            .then(|| Some((info.name_as_str()?.to_owned(), id)))?
    })
    .collect()
}

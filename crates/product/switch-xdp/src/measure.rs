//! Costs of the programs, for benchmarks: instructions, memory of their maps, and time to process a
//! frame without a network (`BPF_PROG_TEST_RUN`).
//!
//! A frame processed in this way updates registers and counters like any other, but is not sent.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::{MapError, MapInfo};
use aya::programs::{ProgramError, SchedClassifier, TestRun as _, TestRunOptions, Xdp};

use crate::attach::{TC, XDP};
use crate::error::{KERNEL_ADVICE, XdpError};
use crate::{Hook, KernelSwitch, OBJECT};

/// Size of a loaded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// The hook of the program.
    pub hook: Hook,
    /// Number of instructions of all its functions.
    pub instructions: u32,
    /// Bytes of machine code.
    pub machine_code: u32,
}

/// Size of a map of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSize {
    /// The map's name in the kernel: the first 15 characters.
    pub name: String,
    /// The map's capacity in entries.
    pub entries: u32,
    /// Kernel memory that is currently allocated for the map.
    pub bytes: u64,
}

/// A program's verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// The program's return code.
    pub verdict: u32,
    /// Length of the resulting frame.
    pub bytes: usize,
}

/// The name of the program that receives frames at a port with this hook.
fn name_of(hook: Hook) -> &'static str {
    if hook == Hook::Tc { TC } else { XDP }
}

/// Number of instructions of each function in the object file. Inlined code counts for the caller.
pub fn function_sizes() -> Result<BTreeMap<String, usize>, XdpError> {
    let object = aya_obj::Object::parse(OBJECT)
        .map_err(|error| XdpError::new("read the object", &error, KERNEL_ADVICE))?;
    let sizes =
        object.functions.values().map(|function| (function.name.clone(), function.instructions.len()));
    Ok(sizes.collect())
}

impl KernelSwitch {
    /// Size of the program for this hook; `None` if it is not loaded.
    pub fn program_size(&self, hook: Hook) -> Option<ProgramSize> {
        let info = self.programs.program(name_of(hook))?.info().ok()?;
        let instructions = info.size_translated()? / size_of::<u64>() as u32;
        Some(ProgramSize { hook, instructions, machine_code: info.size_jitted() })
    }

    /// The maps of the program for this hook.
    pub fn map_sizes(&self, hook: Hook) -> Result<Vec<MapSize>, XdpError> {
        let Some(program) = self.programs.program(name_of(hook)) else { return Ok(Vec::new()) };
        let failed = |error: ProgramError| XdpError::new("list the maps of a program", &error, KERNEL_ADVICE);
        let ids = program.info().and_then(|info| info.map_ids()).map_err(failed)?;
        let sizes = ids.unwrap_or_default().into_iter().map(map_size).collect::<Result<_, _>>();
        sizes.map_err(|error| XdpError::new("read the size of a map", &error, KERNEL_ADVICE))
    }

    /// Lets the program of a hook process a frame, as if received from the interface `ifindex`.
    /// `out` must have room for the resulting frame.
    pub fn feed(&self, hook: Hook, ifindex: u32, frame: &[u8], out: &mut [u8]) -> Result<Fed, XdpError> {
        let failed = |error: ProgramError| XdpError::new("run a program on a frame", &error, KERNEL_ADVICE);
        let (xdp, tc) = (xdp_context(frame.len(), ifindex), tc_context(ifindex));
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(out),
            ctx_in: Some(if hook == Hook::Tc { &tc } else { &xdp }),
            ..TestRunOptions::new()
        };
        let program = self.programs.program(name_of(hook)).ok_or(ProgramError::NotLoaded).map_err(failed)?;
        let result = match hook {
            Hook::Tc => <&SchedClassifier>::try_from(program).and_then(|program| program.test_run(options)),
            _ => <&Xdp>::try_from(program).and_then(|program| program.test_run(options)),
        }
        .map_err(failed)?;
        Ok(Fed { verdict: result.return_value, bytes: result.data_size_out as usize })
    }
}

fn map_size(id: u32) -> Result<MapSize, MapError> {
    let info = MapInfo::from_id(id)?;
    let fd = info.fd()?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd()));
    let text = text.map_err(MapError::IoError)?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok());
    let bytes = bytes
        .ok_or_else(|| MapError::IoError(io::Error::other("the kernel does not report the map's memory")))?;
    let name = String::from_utf8_lossy(info.name()).into_owned();
    Ok(MapSize { name, entries: info.max_entries(), bytes })
}

/// `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, …
fn xdp_context(frame_bytes: usize, ifindex: u32) -> [u8; 24] {
    let mut context = [0; 24];
    context[4..8].copy_from_slice(&(frame_bytes as u32).to_ne_bytes());
    context[12..16].copy_from_slice(&ifindex.to_ne_bytes());
    context
}

/// `struct __sk_buff`: its eleventh word is ifindex.
fn tc_context(ifindex: u32) -> [u8; 192] {
    let mut context = [0; 192];
    context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_hot_keys_have_sizes() {
        let sizes = function_sizes().unwrap();
        assert!(["count_hot", "pass_hot", "hear_hot"].iter().all(|name| sizes[*name] > 10), "{sizes:?}");
    }
}

//! What the programs take, for benches: instructions, memory of their maps, and frames that are put through them without a network (`BPF_PROG_TEST_RUN`).
//!
//! Such a frame changes registers and counters as any other one does, and is sent nowhere.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::{MapError, MapInfo};
use aya::programs::{ProgramError, SchedClassifier, TestRun as _, TestRunOptions, Xdp};

use crate::attach::{TC, XDP};
use crate::error::{KERNEL_ADVICE, XdpError};
use crate::{Hook, KernelSwitch, OBJECT};

/// A program that takes frames, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// Where it works.
    pub hook: Hook,
    /// Instructions, all its functions together.
    pub instructions: u32,
    /// Bytes of machine code.
    pub machine_code: u32,
}

/// A map of that program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSize {
    /// As the kernel keeps it: its first 15 letters.
    pub name: String,
    /// How many entries it has room for.
    pub entries: u32,
    /// Memory that is the kernel's for it, now.
    pub bytes: u64,
}

/// A frame put through a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// What the program returned.
    pub verdict: u32,
    /// Bytes of the frame then.
    pub bytes: usize,
}

/// The program with which a port begins that takes frames.
fn name_of(hook: Hook) -> &'static str {
    if hook == Hook::Tc { TC } else { XDP }
}

/// Instructions of each function of the object, as compiled. What is inlined belongs to whoever calls it.
pub fn function_sizes() -> Result<BTreeMap<String, usize>, XdpError> {
    let object = aya_obj::Object::parse(OBJECT)
        .map_err(|error| XdpError::new("read the object", &error, KERNEL_ADVICE))?;
    let sizes =
        object.functions.values().map(|function| (function.name.clone(), function.instructions.len()));
    Ok(sizes.collect())
}

impl KernelSwitch {
    /// How large the program is that takes frames at this hook; none: it is not loaded.
    pub fn program_size(&self, hook: Hook) -> Option<ProgramSize> {
        let info = self.programs.program(name_of(hook))?.info().ok()?;
        let instructions = info.size_translated()? / size_of::<u64>() as u32;
        Some(ProgramSize { hook, instructions, machine_code: info.size_jitted() })
    }

    /// The maps of that program.
    pub fn map_sizes(&self, hook: Hook) -> Result<Vec<MapSize>, XdpError> {
        let Some(program) = self.programs.program(name_of(hook)) else { return Ok(Vec::new()) };
        let failed =
            |error: ProgramError| XdpError::new("ask for the maps of a program", &error, KERNEL_ADVICE);
        let ids = program.info().and_then(|info| info.map_ids()).map_err(failed)?;
        let sizes = ids.unwrap_or_default().into_iter().map(map_size).collect::<Result<_, _>>();
        sizes.map_err(|error| XdpError::new("ask for the size of a map", &error, KERNEL_ADVICE))
    }

    /// Puts a frame that has come in at the port with this interface through the program of a hook; `out` has room for what becomes of it.
    pub fn feed(&self, hook: Hook, ifindex: u32, frame: &[u8], out: &mut [u8]) -> Result<Fed, XdpError> {
        let failed =
            |error: ProgramError| XdpError::new("put a frame through a program", &error, KERNEL_ADVICE);
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
    let bytes = bytes.ok_or_else(|| MapError::IoError(io::Error::other("its memory is not told")))?;
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

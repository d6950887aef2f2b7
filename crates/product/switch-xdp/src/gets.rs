//! Gets that a storage node's kernel answers: the program at the tc ingress of the node's own
//! interface, and the memory that it shares with the process. `nicekv-kernel-gets` describes this
//! memory, and has the reference implementation of the program.
//!
//! The process stores into memory-mapped maps, without a system call. The link to the interface is
//! a file descriptor, and nothing is pinned: program and maps disappear when the process ends,
//! however it ends (G6).

#![allow(unsafe_code, reason = "the maps are mapped into memory")]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

use aya::maps::{Map, MapData, MapError, PerCpuArray};
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, Pod};
use nicekv_kernel_gets::{ENTRY_WORDS, GATE_WORDS, Memory, OUTCOMES, Outcomes, Program, SOURCES, Size, Word};

use crate::error::{KERNEL_ADVICE, PORT_ADVICE, XdpError};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/gets.bpf.o");
const PROGRAM: &str = "nicekv_gets";
const COUNTERS: &str = "outcomes";

/// `struct nicekv_gets_config`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Config {
    address: [u8; 4],
    port: [u8; 2],
    reserved: u16,
    entries: u32,
}

// SAFETY: no padding, and any bytes are valid.
unsafe impl Pod for Config {}

/// An array map that is mapped into the process's memory.
struct Mapped {
    words: *mut u64,
    count: usize,
    /// Number of words of an element.
    stride: usize,
}

// SAFETY: the memory is not bound to a thread, and is accessed only by atomic operations.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(map: &MapData, elements: u32, stride: usize) -> io::Result<Self> {
        let count = elements as usize * stride;
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, map.fd().as_fd().as_raw_fd());
        // SAFETY: this creates a new mapping; the kernel refuses one that is longer than the map.
        let words = unsafe { libc::mmap(ptr::null_mut(), 8 * count, protection, libc::MAP_SHARED, fd, 0) };
        match words {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            words => Ok(Self { words: words.cast(), count, stride }),
        }
    }

    fn word(&self, element: u32, word: usize) -> &AtomicU64 {
        let at = element as usize * self.stride + word;
        assert!(word < self.stride && at < self.count, "word {word} of element {element}");
        // SAFETY: the word is within the mapping, which is page-aligned and lives as long as
        // `self`.
        unsafe { AtomicU64::from_ptr(self.words.add(at)) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping as it was created, and no reference to it is left.
        unsafe { libc::munmap(self.words.cast(), 8 * self.count) };
    }
}

/// The memory that the program and the process share.
pub struct SharedWords {
    gates: Mapped,
    entries: Mapped,
    sources: Mapped,
}

impl SharedWords {
    /// See [`Program::take_sources`].
    pub(crate) fn take_sources(&mut self) -> Vec<(u32, Ipv4Addr, u64)> {
        let take = |cell| {
            let name = self.sources.word(cell, 0).load(Ordering::Acquire);
            let gate = u32::try_from(name >> 32).ok()?.checked_sub(1)?;
            let gets = self.sources.word(cell, 1).swap(0, Ordering::AcqRel);
            self.sources.word(cell, 0).store(0, Ordering::Release);
            Some((gate, Ipv4Addr::from_bits(name as u32), gets))
        };
        (0..SOURCES).filter_map(take).collect()
    }

    fn at(&self, at: Word) -> &AtomicU64 {
        match at {
            Word::Gate(gate, word) => self.gates.word(gate, word),
            Word::Entry(entry, word) => self.entries.word(entry, word),
        }
    }
}

impl Memory for SharedWords {
    fn load(&self, at: Word) -> u64 {
        self.at(at).load(Ordering::Acquire)
    }

    fn store(&mut self, at: Word, word: u64) {
        self.at(at).store(word, Ordering::Release);
    }
}

/// An attached program with its shared memory. Dropping it detaches the program.
pub struct RunningGets {
    program: KernelGets,
    words: SharedWords,
}

impl RunningGets {
    /// Loads the program for a node's socket, and attaches it to an interface of the caller's
    /// network namespace. The program answers no gets until the process has filled the memory.
    pub fn begin(interface: &str, socket: SocketAddrV4, size: Size) -> Result<Self, XdpError> {
        let (mut program, words) = KernelGets::load(socket, size)?;
        program.attach(interface)?;
        Ok(Self { program, words })
    }
}

impl Memory for RunningGets {
    fn load(&self, at: Word) -> u64 {
        self.words.load(at)
    }

    fn store(&mut self, at: Word, word: u64) {
        self.words.store(at, word);
    }
}

impl Program for RunningGets {
    fn outcomes(&self) -> Option<Outcomes> {
        self.program.outcomes().ok()
    }

    fn take_sources(&mut self) -> Vec<(u32, Ipv4Addr, u64)> {
        self.words.take_sources()
    }
}

/// The program of a node. Dropping it detaches the program.
pub struct KernelGets {
    pub(crate) programs: Ebpf,
}

impl KernelGets {
    /// Loads the program for a node's socket. It answers no gets until it is attached and the
    /// process has filled the memory, which starts zeroed.
    pub fn load(socket: SocketAddrV4, size: Size) -> Result<(Self, SharedWords), XdpError> {
        if !cfg!(target_arch = "x86_64") {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(XdpError::new(
                "share memory with a program in the kernel",
                &error,
                "It needs x86-64",
            ));
        }
        let (address, port) = (socket.ip().octets(), socket.port().to_be_bytes());
        let config = Config { address, port, reserved: 0, entries: size.entries };
        let mut programs = EbpfLoader::new()
            .override_global("config", &config, true)
            .map_max_entries("gates", size.gate_count())
            .map_max_entries("entries", size.entries)
            .load(OBJECT)
            .map_err(|error| XdpError::new("load the object of kernel gets", &error, KERNEL_ADVICE))?;
        let shared = |name, elements, stride| {
            let Some(Map::Array(map)) = programs.map(name) else { unreachable!("the object holds {name}") };
            Mapped::new(map, elements, stride)
                .map_err(|error| XdpError::new(format!("map {name} into memory"), &error, KERNEL_ADVICE))
        };
        let gates = shared("gates", size.gate_count(), GATE_WORDS)?;
        let entries = shared("entries", size.entries, ENTRY_WORDS)?;
        let sources = shared("sources", SOURCES, 2)?;
        program(&mut programs)
            .and_then(SchedClassifier::load)
            .map_err(|error| XdpError::new(format!("load {PROGRAM}"), &error, KERNEL_ADVICE))?;
        Ok((Self { programs }, SharedWords { gates, entries, sources }))
    }

    /// Attaches the program to an interface of the caller's network namespace.
    pub fn attach(&mut self, interface: &str) -> Result<(), XdpError> {
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        program(&mut self.programs)
            .and_then(|program| program.attach_with_options(interface, TcAttachType::Ingress, order))
            .map(drop)
            .map_err(|error| XdpError::new(format!("attach {PROGRAM} to {interface}"), &error, PORT_ADVICE))
    }

    /// Number of gets by outcome, in the order of [`OUTCOMES`].
    pub fn outcomes(&self) -> Result<Outcomes, MapError> {
        let map = self.programs.map(COUNTERS).expect("the object holds the map");
        let map = PerCpuArray::<_, u64>::try_from(map)?;
        let mut outcomes = [0; OUTCOMES.len()];
        for (at, outcome) in outcomes.iter_mut().enumerate() {
            *outcome = map.get(&(at as u32), 0)?.iter().sum();
        }
        Ok(outcomes)
    }
}

fn program(programs: &mut Ebpf) -> Result<&mut SchedClassifier, ProgramError> {
    programs.program_mut(PROGRAM).expect("the object holds the program").try_into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_layout_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/gets.h");
        let text = nicekv_kernel_gets::c_header();
        if std::env::var_os("NICEKV_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == text, "bpf/gets.h is stale: set NICEKV_BLESS=1 and run this test again");
    }
}

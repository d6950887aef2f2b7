//! Counts of `perf stat` for an unmodified process: system calls, fsyncs, allocations.
//!
//! Allocations are calls of the C library's allocator, counted by probes in the library's code: the
//! program has no code for it, and without a probe it costs nothing. A probed call takes about a
//! microsecond longer, so allocations have a separate run.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// All system calls, and those that sync a file.
pub(super) const SYSTEM_CALLS: [&str; 3] =
    ["raw_syscalls:sys_enter", "syscalls:sys_enter_fdatasync", "syscalls:sys_enter_fsync"];
/// The allocator's functions; the last one is for larger alignments.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];
/// Name of the group of probes.
const GROUP: &str = "nicekv_bench";

/// `perf stat` on a process.
pub(super) struct Tracer {
    child: Child,
    events: Vec<String>,
}

impl Tracer {
    /// `None` without `perf`.
    pub(super) fn start<E: AsRef<str>>(process: u32, events: &[E]) -> Option<Self> {
        let events: Vec<String> = events.iter().map(|event| event.as_ref().to_owned()).collect();
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", &events.join(","), "-p", &process.to_string()]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().ok().map(|child| Self { child, events })
    }

    /// How often each event happened.
    pub(super) fn finish(self) -> Option<Vec<u64>> {
        let process = rustix::process::Pid::from_child(&self.child);
        // It prints what it has counted when it is interrupted.
        rustix::process::kill_process(process, rustix::process::Signal::INT).ok()?;
        let output = self.child.wait_with_output().ok()?;
        parse(&String::from_utf8_lossy(&output.stderr), &self.events)
    }
}

/// Parses lines such as `1234,,raw_syscalls:sys_enter,…`. The count of a process that has slept all
/// the time is `<not counted>`.
fn parse(text: &str, events: &[String]) -> Option<Vec<u64>> {
    let count = |event: &String| {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(event))?;
        match line.split(',').next()? {
            "<not counted>" => Some(0),
            count => count.parse().ok(),
        }
    };
    events.iter().map(count).collect()
}

/// Probes of the allocator, removed when they are dropped.
pub(super) struct Probes {
    pub(super) events: Vec<String>,
}

impl Probes {
    /// `None` without `perf`, without kernel support for probes, or if the C library is not a file
    /// of its own.
    pub(super) fn set() -> Option<Self> {
        let library = c_library(&std::fs::read_to_string("/proc/self/maps").ok()?)?;
        // A bench that was killed leaves its probes behind.
        remove();
        // Dropping it removes the probes that exist, even if the next one fails.
        let mut probes = Self { events: Vec::new() };
        for function in ALLOCATORS {
            let mut command = perf_probe();
            command.arg("-x").arg(&library).args(["--add", &format!("{GROUP}:{function}={function}")]);
            command.status().ok().filter(std::process::ExitStatus::success)?;
            probes.events.push(format!("{GROUP}:{function}"));
        }
        Some(probes)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        remove();
    }
}

fn remove() {
    // There may be none.
    let _ = perf_probe().args(["--del", &format!("{GROUP}:*")]).status();
}

fn perf_probe() -> Command {
    let mut command = Command::new("perf");
    command.args(["probe", "-q"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The file of the C library in a process' memory. The roles are the same program as this one.
fn c_library(maps: &str) -> Option<PathBuf> {
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let name = |file: &&str| file.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so"));
    files.filter(|file| file.starts_with('/')).find(name).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_perf_prints() {
        let events = SYSTEM_CALLS.map(str::to_owned);
        let text = "1234,,raw_syscalls:sys_enter,99,100.00,,\n7,,syscalls:sys_enter_fdatasync,1,1,,\n<not counted>,,syscalls:sys_enter_fsync,0,100.00,,\n";
        assert_eq!(parse(text, &events), Some(vec![1234, 7, 0]));
        assert_eq!(parse("<not supported>,,raw_syscalls:sys_enter,0,0,,", &events), None);
    }

    #[test]
    fn the_c_library_is_found_among_what_is_mapped() {
        let maps = "7f61-7f62 r--p 00000000 fe:00 32 /usr/lib/libclang.so.1\n7f63-7f64 r-xp 00026000 fe:00 33   /usr/lib/libc.so.6\n7f65-7f66 rw-p 0 00:00 0\n";
        assert_eq!(c_library(maps), Some(PathBuf::from("/usr/lib/libc.so.6")));
        assert_eq!(c_library("00400000-00500000 r-xp 0 fe:00 1 /usr/bin/nicekv\n"), None);
    }
}

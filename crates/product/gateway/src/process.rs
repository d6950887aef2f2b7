//! The kernel's figures of this process.

use std::fs;

/// The process's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Anonymous memory.
    pub(crate) own: u64,
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Memory {
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/status").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self {
            own: kilobytes(text, "RssAnon:")?,
            resident: kilobytes(text, "VmRSS:")?,
            peak: kilobytes(text, "VmHWM:")?,
        })
    }
}

/// The machine's memory, in bytes.
pub(crate) fn machine_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// CPU seconds used in the kernel and in user mode.
pub(crate) fn processor_s() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The program name may contain spaces and parentheses. The first field after it is the third of
    // the line.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let (own, kernel) = (ticks()?, ticks()?);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Some((kernel / per_second, own / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_are_read() {
        let text = "Name:\ta\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\nRssAnon:\t    1000 kB\n";
        let memory = Memory { own: 1_024_000, resident: 2_048_000, peak: 3_072_000 };
        assert_eq!((Memory::parse(text), Memory::parse("")), (Some(memory), None));
        let own = Memory::read().unwrap();
        assert!(own.own > 0 && own.own <= own.resident && machine_bytes().unwrap() > own.resident);
        let (kernel, user) = processor_s().unwrap();
        assert!(kernel >= 0.0 && user >= 0.0);
    }
}

//! Metrics of the process, from `/proc`.

use crate::catalogue::{BUILD, CPU, DESCRIPTORS, RESIDENT, SCRAPES, STARTED};
use crate::samples::Samples;
use std::fs;

pub(crate) fn gather(samples: &mut Samples, pages: u64) {
    samples.set(&BUILD, &[env!("CARGO_PKG_VERSION")], 1);
    samples.set(&SCRAPES, &[], pages);
    let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text)) else {
        return;
    };
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    samples.set_real(&CPU, &[], stat.cpu_ticks as f64 / ticks_per_second);
    samples.set(&RESIDENT, &[], stat.resident_pages * rustix::param::page_size() as u64);
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        // One of the entries is the open directory itself.
        samples.set(&DESCRIPTORS, &[], descriptors.count().saturating_sub(1) as u64);
    }
    if let Some(booted_s) = booted_s() {
        samples.set_real(&STARTED, &[], booted_s as f64 + stat.started_ticks as f64 / ticks_per_second);
    }
}

/// `/proc/self/stat`
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    started_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses; the name may contain spaces and
        // parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            started_ticks: field(22)?,
            resident_pages: field(24)?,
        })
    }
}

fn booted_s() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_are_found_after_any_program_name() {
        let text =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 9 0 1234 5678 90 18446744073709551615 1";
        let stat = Stat { cpu_ticks: 110, started_ticks: 1234, resident_pages: 90 };
        assert_eq!(Stat::parse(text), Some(stat));
        for garbage in
            ["", "7 (nicekv", "7 (nicekv) S 1 2", "7 (nicekv) S x x x x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(Stat::parse(garbage), None, "{garbage:?}");
        }
        let own = Stat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        assert!(own.resident_pages > 100 && own.started_ticks > 0 && booted_s() > Some(1_000_000_000));
    }
}

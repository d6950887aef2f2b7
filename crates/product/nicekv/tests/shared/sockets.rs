//! The sockets of a process according to the kernel, to compare with the list of `nicekv status`.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Protocol and address of each IPv4 socket of a process that listens (TCP) or is bound (UDP).
pub(crate) fn of_process(process: u32) -> BTreeSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let own: BTreeSet<String> = targets.filter_map(|target| target.to_str().map(str::to_owned)).collect();
    let mut found = BTreeSet::new();
    for protocol in ["tcp", "udp"] {
        let text = fs::read_to_string(format!("/proc/{process}/net/{protocol}")).unwrap();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_own = own.contains(&format!("socket:[{}]", words[9]));
            if is_own && (protocol == "udp" || words[3] == "0A") {
                let (ip, port) = words[1].split_once(':').unwrap();
                let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).unwrap().to_ne_bytes());
                let address = SocketAddrV4::new(ip, u16::from_str_radix(port, 16).unwrap());
                found.insert(format!("{protocol} {address}"));
            }
        }
    }
    found
}

/// The same sockets as `nicekv status --json` lists them, for the roles that `is_asked` selects.
pub(crate) fn of_status(status: &Value, is_asked: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let listening = status["control_plane"]["listening"].as_array().expect("status says what is open");
    let asked = listening.iter().filter(|socket| is_asked(socket["role"].as_str().unwrap()));
    let shown = asked.map(|socket| {
        let word = |field: &str| socket[field].as_str().unwrap();
        format!("{} {}", word("protocol"), word("address"))
    });
    shown.collect()
}

//! Whether a node's kernel answers gets: wherever the role may load programs, and someone would be answered.

use crate::logs::events::Event;
use crate::logs::watch::emit;
use log::Level;
use nicekv_config::{ClusterConfig, NodeSection};
use nicekv_kernel_gets::{ENTRY_WORDS, Program, Size, WAYS};
use nicekv_switch_xdp::gets::RunningGets;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// Partitions of a node of which gets are answered, at most.
const GATES: u32 = 4096;
/// Owners of hot keys, each under a serial, whose copies are shown, at most.
const LESSORS: u32 = 1024;

/// What was begun, and how much room it has.
pub(crate) type Begun = (Box<dyn Program + Send>, Size);

/// Begins if it may; else the log says why not.
pub(crate) fn begin(config: &ClusterConfig, section: &NodeSection) -> Option<Begun> {
    let event = |answers: &str| Event::new(Level::Info, "kernel gets").with("answers", answers);
    match try_begin(config, section) {
        Ok((interface, begun)) => {
            let told =
                event("yes").with("interface", &interface[..]).with("entries", u64::from(begun.1.entries));
            emit("node", &section.name, told);
            Some(begun)
        }
        Err(why) => {
            emit("node", &section.name, event("no").with("why", &why[..]));
            None
        }
    }
}

fn try_begin(config: &ClusterConfig, section: &NodeSection) -> Result<(String, Begun), String> {
    let address = section.address;
    let size = size_of(section.kernel_get_mib).ok_or("kernel_get_mib leaves no room")?;
    if address.is_loopback() {
        return Err("the node is asked by way of the loopback interface".into());
    }
    if config.hiding_switch().is_some() {
        return Err("the switch hides who asks".into());
    }
    let interface = interface_of(address)?;
    let program = RunningGets::begin(&interface, SocketAddrV4::new(address, config.port), size)
        .map_err(|error| error.to_string())?;
    Ok((interface, (Box::new(program), size)))
}

/// What so many MiB have room for.
fn size_of(mebibytes: u32) -> Option<Size> {
    let entries = (u64::from(mebibytes) << 20) / (8 * ENTRY_WORDS as u64);
    let entries = 1 << u32::try_from(entries).ok()?.checked_ilog2()?;
    (entries >= WAYS).then_some(Size { entries, gates: GATES, lessors: LESSORS })
}

fn interface_of(address: Ipv4Addr) -> Result<String, String> {
    let interfaces = if_addrs::get_if_addrs().map_err(|error| format!("interfaces: {error}"))?;
    let found = interfaces.into_iter().find(|interface| interface.ip() == IpAddr::V4(address));
    Ok(found.ok_or_else(|| format!("no interface has {address}"))?.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_a_power_of_two_within_the_memory() {
        assert_eq!(size_of(0), None);
        let size = size_of(1).expect("room");
        assert_eq!(size.entries, 512);
        assert!(u64::from(size.entries) * 8 * ENTRY_WORDS as u64 <= 1 << 20);
        assert_eq!(size_of(16).map(|size| size.entries), Some(8192));
    }
}

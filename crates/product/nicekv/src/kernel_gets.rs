//! Gets answered by a node's kernel. This needs permission to load eBPF programs, and a network
//! interface through which clients reach the node directly.

use crate::logs::events::Event;
use crate::logs::watch::emit;
use log::Level;
use nicekv_config::{ClusterConfig, NodeSection};
use nicekv_kernel_gets::{ENTRY_WORDS, Program, Size, WAYS};
use nicekv_switch_xdp::gets::RunningGets;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// Maximum number of a node's partitions whose gets the kernel answers.
const GATES: u32 = 4096;
/// Maximum number of hot-key owners whose leased copies the kernel may serve.
const LESSORS: u32 = 1024;

/// A loaded eBPF program, and the size of its table.
pub(crate) type Loaded = (Box<dyn Program + Send>, Size);

/// Loads the program if possible; otherwise logs why not.
pub(crate) fn load(config: &ClusterConfig, section: &NodeSection) -> Option<Loaded> {
    let event = |answers: &str| Event::new(Level::Info, "kernel gets").with("answers", answers);
    match try_load(config, section) {
        Ok((interface, begun)) => {
            let loaded =
                event("yes").with("interface", &interface[..]).with("entries", u64::from(begun.1.entries));
            emit("node", &section.name, loaded);
            Some(begun)
        }
        Err(why) => {
            emit("node", &section.name, event("no").with("why", &why[..]));
            None
        }
    }
}

fn try_load(config: &ClusterConfig, section: &NodeSection) -> Result<(String, Loaded), String> {
    let address = section.address;
    let size = size_of(section.kernel_get_mib).ok_or("kernel_get_mib is too small")?;
    if address.is_loopback() {
        return Err("clients reach the node through the loopback interface".into());
    }
    if config.hiding_switch().is_some() {
        return Err("the switch replaces the addresses of clients".into());
    }
    let interface = interface_of(address)?;
    let program = RunningGets::begin(&interface, SocketAddrV4::new(address, config.port), size)
        .map_err(|error| error.to_string())?;
    Ok((interface, (Box::new(program), size)))
}

/// The largest table that fits into this much memory.
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
    fn size_is_a_power_of_two_within_the_memory() {
        assert_eq!(size_of(0), None);
        let size = size_of(1).expect("room");
        assert_eq!(size.entries, 512);
        assert!(u64::from(size.entries) * 8 * ENTRY_WORDS as u64 <= 1 << 20);
        assert_eq!(size_of(16).map(|size| size.entries), Some(8192));
    }
}

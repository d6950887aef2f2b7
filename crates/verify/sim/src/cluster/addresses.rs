//! Addresses of the switch, and of the instances of the metadata service.

use crate::switch::{METADATA_MAC, METADATA_PORT};
use nicekv_metadata::ServiceConfig;
use nicekv_proto::limits::PORT_DEFAULT;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 1), PORT_DEFAULT);

/// The addresses of the metadata service's instances.
pub(crate) static INSTANCES: [SocketAddrV4; 3] = [
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT),
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 3), PORT_DEFAULT),
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 4), PORT_DEFAULT),
];

/// An instance of the metadata service, as it appears in the switches' tables.
pub(super) fn service(index: usize) -> ServiceConfig {
    let (mut mac, address) = (METADATA_MAC, INSTANCES[index]);
    mac[5] += index as u8;
    ServiceConfig { address, mac, switch_port: METADATA_PORT - index as u16 }
}

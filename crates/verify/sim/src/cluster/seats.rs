//! What is known of the instances of the metadata service: [`super::instances`] lets them act.

use crate::node::Clock;
use crate::switch::{METADATA_MAC, METADATA_PORT};
use nicekv_metadata::{Election, Seat, ServiceConfig};
use nicekv_proto::limits::PORT_DEFAULT;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where they are.
pub(crate) static INSTANCES: [SocketAddrV4; 3] = [
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT),
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 3), PORT_DEFAULT),
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 4), PORT_DEFAULT),
];

#[derive(Clone)]
pub(super) struct Instance {
    /// `None`: its process is down.
    pub(super) election: Option<Election>,
    pub(super) clock: Clock,
    /// Of all its processes, this one.
    pub(super) life: u64,
    /// Of all requests of this process, the last.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// Its core, while it leads or does not know better.
    pub(super) process: Option<u64>,
    pub(super) has_step: bool,
    pub(super) turn_at_ns: Option<u64>,
    pub(super) paused_until_ns: u64,
    pub(super) storeless_until_ns: u64,
}

/// All of them.
#[derive(Clone, Default)]
pub(super) struct Instances {
    pub(super) members: Vec<Instance>,
    pub(super) seat: Seat,
}

impl Instances {
    /// The one whose core this is.
    pub(super) fn of(&self, process: u64) -> Option<usize> {
        self.members.iter().position(|member| member.process == Some(process))
    }
}

/// An instance, for the switches.
pub(super) fn service(index: usize) -> ServiceConfig {
    let (mut mac, address) = (METADATA_MAC, INSTANCES[index]);
    mac[5] += index as u8;
    ServiceConfig { address, mac, switch_port: METADATA_PORT - index as u16 }
}

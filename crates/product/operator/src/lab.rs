//! The running lab: its metadata service and its hosts, from the file that `nicekv-lab` writes.

use crate::failure::Failure;
use nicekv_cli::lab::{LabName, NAMESPACE_DIRECTORY};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::path::Path;

/// The fields of the lab's file that commands need.
#[derive(Deserialize)]
pub(crate) struct Lab {
    /// The network namespace of a host is named by this prefix and the host's name.
    namespace_prefix: String,
    /// TCP addresses of the metadata instances; only hosts of the lab reach them.
    pub metadata: Vec<SocketAddrV4>,
    /// The names of the client hosts.
    clients: Vec<String>,
}

impl Lab {
    /// The lab that the environment names, if its file exists; it may no longer run.
    pub(crate) fn find() -> Option<Self> {
        let name = LabName::from_environment().ok()?;
        serde_json::from_slice(&fs::read(name.state_file()).ok()?).ok()
    }

    /// Moves the calling thread, and threads that it starts later, into the first client host.
    pub(crate) fn enter_client(&self) -> Result<(), Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::Environment(
                "nicekv lab needs root, for network namespaces and eBPF: run it with sudo".into(),
            ));
        }
        let none = || Failure::Environment("no lab is running: `nicekv lab up` starts one".into());
        let client = self.clients.first().ok_or_else(none)?;
        let path = Path::new(NAMESPACE_DIRECTORY).join(format!("{}{client}", self.namespace_prefix));
        let enter = || {
            let namespace = File::open(&path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            std::io::Result::Ok(())
        };
        enter().map_err(|error| Failure::Environment(format!("cannot enter {}: {error}", path.display())))
    }
}

//! Which sockets are open to which networks: compares `nicekv status` with the kernel's lists of
//! sockets, on every host.

use crate::fixture::LabUnderTest;
use crate::sockets::{of_process, of_status};
use crate::{POLL_PAUSE, TIMEOUT, as_root, status};
use std::time::Instant;

#[test]
fn status_shows_every_socket_of_every_host_and_none_is_open_to_all_networks() {
    as_root("status_shows_every_socket_of_every_host_and_none_is_open_to_all_networks", || {
        let lab = LabUnderTest::up("listening", &["--engine", "memory", "--nodes", "3", "--clients", "2"]);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let shown = status(&lab);
            let hosts = shown["hosts"].as_array().unwrap();
            let differing = hosts.iter().find_map(|host| {
                let (name, process) = (host["name"].as_str().unwrap(), host["pid"].as_u64().unwrap() as u32);
                let (bound, told) = (of_process(process), of_status(&shown, |role| role == name));
                (bound != told).then(|| format!("{name} has {bound:#?}, status shows {told:#?}"))
            });
            let Some(differing) = differing else { break };
            assert!(Instant::now() < deadline, "{differing}");
            std::thread::sleep(POLL_PAUSE);
        }
        let shown = status(&lab);
        for socket in shown["control_plane"]["listening"].as_array().unwrap() {
            let (address, purpose) = (socket["address"].as_str().unwrap(), &socket["purpose"]);
            // A gateway's client socket is bound to any address; it accepts only answers to its own
            // requests.
            let is_open = address.starts_with("0.0.0.0") && purpose != "replies to its own requests";
            assert!(!is_open && purpose != "unknown", "{socket}");
        }
    });
}

//! The open sockets that `nicekv status` lists, compared with the kernel's lists.

use crate::cluster::{Up, nicekv, outcome};
use crate::sockets::{of_process, of_status};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Generous: changed sockets are reported every two seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the status lists exactly the sockets of the process, and returns it.
fn status_with_all_sockets(scratch: &Path, up: &Up) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (code, json, error) = outcome(nicekv(scratch, &["status", "--json", "--endpoint", &up.endpoint]));
        assert_eq!(code, Some(0), "{error}");
        let status: Value = serde_json::from_str(&json).unwrap();
        let (bound, shown) = (of_process(up.process_id()), of_status(&status, |_| true));
        if bound == shown {
            return status;
        }
        assert!(Instant::now() < deadline, "the kernel has {bound:#?}, status shows {shown:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn status_shows_every_socket_of_up_and_all_are_on_loopback() {
    let scratch = tempfile::tempdir().unwrap();
    let password = scratch.path().join("password");
    std::fs::write(&password, "a-password-of-the-test\n").unwrap();
    let arguments = [
        "--engine",
        "memory",
        "--metrics",
        "127.0.0.1:0",
        "--password-file",
        password.to_str().unwrap(),
        "--gateway-threads",
        "2",
    ];
    let up = Up::start(scratch.path(), &arguments);
    let status = status_with_all_sockets(scratch.path(), &up);
    let listening = status["control_plane"]["listening"].as_array().unwrap();
    for socket in listening {
        let address = socket["address"].as_str().unwrap();
        assert!(address.starts_with("127.") || socket["device"] == "lo", "open to other hosts: {socket}");
        assert_ne!(socket["purpose"], "unknown", "{socket}");
        let is_redis = address == up.resp;
        assert_eq!(socket["is_protected"], is_redis, "{socket}");
        assert_eq!(socket["login"], if is_redis { "password" } else { "no login" }, "{socket}");
    }
    let (_, text, _) = outcome(nicekv(scratch.path(), &["status"]));
    let redis = format!("open to this host only, password: Redis clients (tcp): gateway {}", up.resp);
    assert!(text.lines().any(|line| line.trim() == redis), "{redis:?} is not in {text}");
    let administration = format!(
        "open to this host only, no login: administration, switches and clients (tcp): metadata {}",
        up.endpoint
    );
    assert!(text.lines().any(|line| line.trim() == administration), "{administration:?} is not in {text}");
}

#[test]
fn sockets_bound_later_are_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    let before = status_with_all_sockets(scratch.path(), &up);
    let create = ["keyspace", "create", "objects", "--chunks", "multicast", "--endpoint", &up.endpoint];
    let (code, _, error) = outcome(nicekv(scratch.path(), &create));
    assert_eq!(code, Some(0), "{error}");
    let deadline = Instant::now() + TIMEOUT;
    let chunks = loop {
        let status = status_with_all_sockets(scratch.path(), &up);
        let listening = status["control_plane"]["listening"].as_array().unwrap();
        let chunks = listening.iter().filter(|socket| socket["purpose"] == "chunks of objects").count();
        if chunks == 3 {
            break status;
        }
        assert!(Instant::now() < deadline, "targets of chunks are missing: {status}");
    };
    assert!(of_status(&chunks, |_| true).is_superset(&of_status(&before, |_| true)));
}

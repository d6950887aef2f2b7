//! Finding a running cluster: `--endpoint`, `NICEKV_ENDPOINT`, the running `up`, the running lab, in this order.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddrV4;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where commands find a cluster.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndpointArguments {
    /// TCP address of the metadata service [default: the running `up`, then the running lab]
    #[arg(long, env = "NICEKV_ENDPOINT", value_name = "ADDR:PORT")]
    endpoint: Option<SocketAddrV4>,
}

/// What a running `up` leaves for commands.
#[derive(Debug, Serialize, Deserialize)]
struct UpState {
    pid: u32,
    /// On the boot-time clock.
    started_ns: u64,
    endpoint: SocketAddrV4,
    resp: std::net::SocketAddr,
}

/// The metadata service's TCP address. For the lab, the calling thread is moved into a client's network namespace: call it before any
/// other thread is started.
pub(crate) fn find(arguments: &EndpointArguments) -> Result<SocketAddrV4, Failure> {
    if let Some(endpoint) = arguments.endpoint {
        return Ok(endpoint);
    }
    if let Some(up) = running_up() {
        return Ok(up.endpoint);
    }
    let lab = nicekv_lab::enter_client().map_err(Failure::environment)?;
    lab.ok_or_else(|| {
        let line = "no cluster is running: start one with `nicekv up`, or name one with --endpoint ADDR:PORT";
        Failure::Environment(line.into())
    })
}

/// The `up` that was started last of those that run.
fn running_up() -> Option<UpState> {
    let mut newest = None;
    for entry in fs::read_dir(state_directory(false).ok()?).ok()?.flatten() {
        let Some(state) =
            fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice::<UpState>(&text).ok())
        else {
            continue;
        };
        if !Path::new("/proc").join(state.pid.to_string()).exists() {
            // It was killed and could not withdraw it.
            let _ = fs::remove_file(entry.path());
        } else if newest.as_ref().is_none_or(|newest: &UpState| newest.started_ns < state.started_ns) {
            newest = Some(state);
        }
    }
    newest
}

/// The announcement of a running `up`, withdrawn when it is dropped.
pub(crate) struct Announcement {
    path: PathBuf,
}

/// Announces this process to commands, which find the one that was started last.
pub(crate) fn announce(endpoint: SocketAddrV4, resp: std::net::SocketAddr) -> std::io::Result<Announcement> {
    let (directory, pid) = (state_directory(true)?, std::process::id());
    let (path, new) = (directory.join(format!("up-{pid}.json")), directory.join(format!("up-{pid}.new")));
    let state = UpState { pid, started_ns: nicekv_runtime::now().boot_ns, endpoint, resp };
    fs::write(&new, serde_json::to_vec(&state)?)?;
    fs::rename(&new, &path)?;
    Ok(Announcement { path })
}

impl Drop for Announcement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// `$XDG_RUNTIME_DIR/nicekv` or `/tmp/nicekv-UID`, which must be ours: others must not send us elsewhere.
fn state_directory(create: bool) -> std::io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let path = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(base) => PathBuf::from(base).join("nicekv"),
        None => PathBuf::from(format!("/tmp/nicekv-{uid}")),
    };
    if create {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    }
    let metadata = fs::symlink_metadata(&path)?;
    if !metadata.is_dir() || metadata.uid() != uid {
        return Err(std::io::Error::other(format!("{} is not ours", path.display())));
    }
    Ok(path)
}

//! Finding a running cluster: `--endpoint`, `NICEKV_ENDPOINT`, the running `up`, the running lab, in this order. Where several run and
//! nobody has said which, one line on standard error says which one it is.

use crate::address;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::net::SocketAddrV4;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Says where a cluster is, as `--endpoint` does.
const ENDPOINT_VARIABLE: &str = "NICEKV_ENDPOINT";

/// Where commands find a cluster.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EndpointArguments {
    /// TCP address of the metadata service, of any of its instances or of several with commas between them [default: NICEKV_ENDPOINT of the
    /// environment, then the running `up`, then the running lab]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', value_parser = address::parse_v4)]
    endpoint: Vec<SocketAddrV4>,
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

/// TCP addresses of instances of the metadata service. For the lab, the calling thread is moved into a client's network namespace: call it before any
/// other thread is started.
pub(crate) fn find(arguments: &EndpointArguments) -> Result<Vec<SocketAddrV4>, Failure> {
    if !arguments.endpoint.is_empty() {
        return Ok(arguments.endpoint.clone());
    }
    let of_environment = address::of_environment(ENDPOINT_VARIABLE).map_err(Failure::Environment)?;
    if !of_environment.is_empty() {
        return Ok(of_environment);
    }
    let ups = running_ups();
    if let Some(up) = ups.last() {
        if ups.len() > 1 || nicekv_lab::is_there() {
            let others = others(&ups[..ups.len() - 1], nicekv_lab::is_there());
            eprintln!("nicekv: this is the cluster of {up}, not {others}: choose with --endpoint ADDR:PORT");
        }
        return Ok(vec![up.endpoint]);
    }
    let lab = nicekv_lab::enter_client().map_err(Failure::environment)?;
    lab.ok_or_else(|| {
        let line = "no cluster is running: start one with `nicekv up`, or name one with --endpoint ADDR:PORT";
        Failure::Environment(line.into())
    })
}

impl fmt::Display for UpState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, endpoint, resp, .. } = self;
        write!(formatter, "`nicekv up` at {endpoint} (resp {resp}, process {pid})")
    }
}

/// What else could have been meant.
fn others(ups: &[UpState], has_lab: bool) -> String {
    let ups = ups.iter().map(|up| format!("that at {}", up.endpoint));
    let lab = has_lab.then(|| "the lab (nicekv lab exec client-0 -- nicekv …)".to_owned());
    ups.chain(lab).collect::<Vec<_>>().join(" or ")
}

/// Those that run, the one that was started last at the end.
fn running_ups() -> Vec<UpState> {
    let Ok(entries) = state_directory(false).and_then(fs::read_dir) else { return Vec::new() };
    let mut running: Vec<UpState> = entries.flatten().filter_map(|entry| running_up(&entry.path())).collect();
    running.sort_by_key(|up| up.started_ns);
    running
}

/// The `up` of an announcement, which it has locked as long as it lives.
fn running_up(path: &Path) -> Option<UpState> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        // It was killed and could not withdraw it.
        Ok(()) if path.extension().is_some_and(|extension| extension == "json") => {
            let _ = fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => serde_json::from_reader(file).ok(),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The announcement of a running `up`, withdrawn when it is dropped.
pub(crate) struct Announcement {
    path: PathBuf,
    _locked: File,
}

/// Announces this process to commands, which find the one that was started last.
pub(crate) fn announce(endpoint: SocketAddrV4, resp: std::net::SocketAddr) -> std::io::Result<Announcement> {
    let (directory, pid) = (state_directory(true)?, std::process::id());
    let (path, new) = (directory.join(format!("up-{pid}.json")), directory.join(format!("up-{pid}.new")));
    let state = UpState { pid, started_ns: nicekv_runtime::now().boot_ns, endpoint, resp };
    let mut file = File::create(&new)?;
    file.lock()?;
    file.write_all(&serde_json::to_vec(&state)?)?;
    fs::rename(&new, &path)?;
    Ok(Announcement { path, _locked: file })
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

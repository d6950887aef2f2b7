//! Finding a running cluster, in this order: `--endpoint` or `NICEKV_ENDPOINT`, the `up` whose data directory is ./nicekv-data, the
//! running lab, the only running `up`.
//!
//! If several run and the choice is ambiguous, commands that change something are refused with a list of them, and commands that only read
//! say on standard error which cluster they read. Announcements of other users are ignored.

use crate::failure::Failure;
use crate::lab::Lab;
use nicekv_config::address;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::net::SocketAddrV4;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The environment variable that names a cluster.
const ENDPOINT_VARIABLE: &str = "NICEKV_ENDPOINT";

/// The cluster that a command uses.
#[derive(Clone, Debug, clap::Args)]
pub struct EndpointArguments {
    /// TCP addresses of metadata instances, comma-separated; one is enough [default: NICEKV_ENDPOINT, then the `up` of ./nicekv-data,
    /// then the running lab, then the only running `up`]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', value_parser = address::parse_v4)]
    endpoint: Vec<SocketAddrV4>,
}

/// The announcement of a running `up`.
#[derive(Debug, Serialize, Deserialize)]
struct UpState {
    pid: u32,
    /// Start time on the boot-time clock.
    started_ns: u64,
    endpoint: SocketAddrV4,
    resp: std::net::SocketAddr,
    /// Its data directory; `None`: the data are in memory.
    data: Option<PathBuf>,
}

/// The default data directory of `up`.
pub const DATA_DIRECTORY: &str = "./nicekv-data";
const NONE: &str = "no cluster is running: start one with `nicekv up`, or name one with --endpoint ADDR:PORT";
const CHOOSE: &str = "choose with --endpoint ADDR:PORT or NICEKV_ENDPOINT";

/// A command's access to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Read,
    /// It writes or administers, so the cluster must be unambiguous.
    Change,
}

/// Finds the TCP addresses of the metadata instances. If the cluster is the lab, moves the calling
/// thread into a client's network namespace, so call it before starting other threads.
pub fn find(arguments: &EndpointArguments, purpose: Purpose) -> Result<Vec<SocketAddrV4>, Failure> {
    if !arguments.endpoint.is_empty() {
        return Ok(arguments.endpoint.clone());
    }
    let of_environment = address::of_environment(ENDPOINT_VARIABLE).map_err(Failure::Environment)?;
    if !of_environment.is_empty() {
        return Ok(of_environment);
    }
    let (ups, lab) = (running_ups(), Lab::find());
    let chosen =
        choose(&ups, local_directory().as_deref(), lab.is_some(), purpose).map_err(Failure::Environment)?;
    if let Some(notice) = chosen.notice {
        // A command that calls this twice shows the notice once.
        static SHOWN: Once = Once::new();
        SHOWN.call_once(|| eprintln!("nicekv: {notice}"));
    }
    if let Some(place) = chosen.up {
        return Ok(vec![ups[place].endpoint]);
    }
    let lab = lab.ok_or_else(|| Failure::Environment(NONE.into()))?;
    lab.enter_client()?;
    Ok(lab.metadata)
}

/// The same for a command with a configuration file; by default it uses the metadata service at
/// `controls`.
pub fn find_configured(
    arguments: &EndpointArguments,
    controls: Vec<SocketAddrV4>,
) -> Result<Vec<SocketAddrV4>, Failure> {
    if !arguments.endpoint.is_empty() || controls.is_empty() {
        return find(arguments, Purpose::Change);
    }
    // Only hosts of the lab can reach the addresses in its files.
    let lab = Lab::find().filter(|lab| lab.metadata.iter().any(|address| controls.contains(address)));
    lab.map_or(Ok(()), |lab| lab.enter_client())?;
    Ok(controls)
}

/// The default data directory, if it exists in the working directory.
fn local_directory() -> Option<PathBuf> {
    fs::canonicalize(DATA_DIRECTORY).ok().filter(|path| path.is_dir())
}

/// The cluster that was chosen.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    /// Index of the `up` in the list; `None`: the lab.
    up: Option<usize>,
    /// A notice for the user, if other clusters could have been meant.
    notice: Option<String>,
}

/// Chooses the cluster of the data directory `here`, or the lab, or the only `up`. `ups` is sorted
/// by start time.
fn choose(ups: &[UpState], here: Option<&Path>, has_lab: bool, purpose: Purpose) -> Result<Chosen, String> {
    let is_here = |up: &UpState| here.is_some() && up.data.as_deref() == here;
    if let Some(place) = ups.iter().rposition(is_here) {
        return Ok(Chosen { up: Some(place), notice: None });
    }
    let list = || {
        let ups = ups.iter().rev().map(ToString::to_string);
        let lab = has_lab.then(|| "the lab (nicekv lab exec client-0 -- nicekv …)".to_owned());
        lab.into_iter().chain(ups).collect::<Vec<_>>().join("; ")
    };
    let stopped = here.map(|path| format!("the cluster in {} is not running", path.display()));
    let choice = match (has_lab, ups) {
        (true, []) => return Ok(Chosen { up: None, notice: None }),
        (true, _) => {
            let notice = format!("using the lab; also running: {}; {CHOOSE}", others(ups));
            return Ok(Chosen { up: None, notice: Some(notice) });
        }
        (false, []) => return Err(stopped.map_or(NONE.into(), |stopped| format!("{stopped}: {NONE}"))),
        (false, [_]) if stopped.is_none() => return Ok(Chosen { up: Some(0), notice: None }),
        (false, _) => ups.len() - 1,
    };
    match (purpose, stopped) {
        (Purpose::Change, Some(stopped)) => {
            Err(format!("{stopped}, but others are: {}; nothing was done, {CHOOSE}", list()))
        }
        (Purpose::Change, None) => {
            Err(format!("several clusters are running: {}; nothing was done, {CHOOSE}", list()))
        }
        (Purpose::Read, _) => {
            let notice = format!("using {}; {CHOOSE}", ups[choice]);
            let rest = others(&ups[..choice]);
            let notice = if choice == 0 { notice } else { format!("{notice}; also running: {rest}") };
            Ok(Chosen { up: Some(choice), notice: Some(notice) })
        }
    }
}

impl fmt::Display for UpState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, endpoint, resp, data, .. } = self;
        let data =
            data.as_ref().map_or("data in memory".into(), |data| format!("data in {}", data.display()));
        write!(formatter, "`nicekv up` at {endpoint} (resp {resp}, process {pid}, {data})")
    }
}

/// A list of other running clusters, in words.
fn others(ups: &[UpState]) -> String {
    ups.iter().rev().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The announcements of running `up`s, sorted by start time.
fn running_ups() -> Vec<UpState> {
    let Ok(entries) = state_directory(false).and_then(fs::read_dir) else { return Vec::new() };
    let mut running: Vec<UpState> = entries.flatten().filter_map(|entry| running_up(&entry.path())).collect();
    running.sort_by_key(|up| up.started_ns);
    running
}

/// Reads an announcement; `None` if its `up` no longer runs. A running `up` keeps the file locked.
fn running_up(path: &Path) -> Option<UpState> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        // The file is not locked: its `up` was killed before it could remove it.
        Ok(()) if path.extension().is_some_and(|extension| extension == "json") => {
            let _ = fs::remove_file(path);
            None
        }
        Err(TryLockError::WouldBlock) => serde_json::from_reader(file).ok(),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// The announcement of this process; dropping it removes the file.
pub struct Announcement {
    path: PathBuf,
    _locked: File,
}

/// Announces this `up` to commands.
pub fn announce(
    endpoint: SocketAddrV4,
    resp: std::net::SocketAddr,
    data: Option<&Path>,
) -> std::io::Result<Announcement> {
    let (directory, pid) = (state_directory(true)?, std::process::id());
    let (path, new) = (directory.join(format!("up-{pid}.json")), directory.join(format!("up-{pid}.new")));
    let state = UpState {
        pid,
        started_ns: nicekv_runtime::now().boot_ns,
        endpoint,
        resp,
        data: data.map(Path::to_owned),
    };
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

/// `$XDG_RUNTIME_DIR/nicekv` or `/tmp/nicekv-UID`. It must belong to this user, or others could
/// redirect the user's commands to their cluster.
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
        return Err(std::io::Error::other(format!("{} belongs to another user", path.display())));
    }
    Ok(path)
}
